"""Names of light topics (Java: lite topics) and of their queues."""
