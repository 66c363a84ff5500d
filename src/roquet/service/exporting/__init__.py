"""Metrics on their way out: settings, what pushes them to a collector, what logs them."""
