"""Fuzzers of everything that reads bytes from a peer or a disk."""
