"""Changes of the compiled core, and the tests that should notice them."""
