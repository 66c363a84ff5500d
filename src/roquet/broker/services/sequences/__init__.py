"""Appends in sequence: the rule, what is known of each queue, and the service."""
