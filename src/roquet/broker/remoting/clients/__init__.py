"""Adapters of what clients say of themselves: heartbeats, members, queue locks."""
