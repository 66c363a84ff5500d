"""Measurements beside the Java broker: `make bench`."""
