"""What brokers tell name servers of themselves, and what is asked of those that left."""
