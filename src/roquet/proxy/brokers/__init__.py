"""Where messages are: the broker of this process, or the brokers of a cluster."""
