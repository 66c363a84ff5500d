"""SQL92 filter expressions: from text to the steps that the native filter runs."""
