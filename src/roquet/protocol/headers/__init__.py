"""One module a family of requests."""
