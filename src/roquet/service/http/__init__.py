"""The small HTTP server of our own processes, and the services on it."""
