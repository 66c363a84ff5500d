"""Queries and pages of the jobs that watch consumers: `lag` and `dlq`."""
