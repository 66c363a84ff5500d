"""Faults of the proxy: its servers, and official clients under kills."""
