"""Connections: bytes in and out, calls in both directions, and their limits."""
