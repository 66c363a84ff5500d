"""Tests with the Java name server, broker, clients and tools."""
