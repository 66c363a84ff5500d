"""Changes of a database, read from topics, as a table."""
