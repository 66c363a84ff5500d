"""Faults in real processes: kills, damaged files, calls that fail; every message accounted for."""
