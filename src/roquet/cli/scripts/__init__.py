"""Scripts that others start by their path."""
