"""Commands around clusters: contexts, `top`, `bench`, `cheat`."""
