"""The rules of sends: the steps, batches, and what is said of messages that are not stored."""
