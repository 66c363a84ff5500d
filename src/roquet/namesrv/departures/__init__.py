"""Brokers that left: what is kept of them, in memory and in a file."""
