"""Names and records of POP consumption, as they lie on disk (spec: store §17)."""
