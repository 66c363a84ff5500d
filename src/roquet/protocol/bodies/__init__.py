"""Shapes of message bodies on the wire (spec: bodies.json)."""
