"""Clients that are connected: their groups, and the queues that they have locked."""
