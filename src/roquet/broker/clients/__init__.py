"""Who is connected: groups, subscriptions, queue locks, reads that wait."""
