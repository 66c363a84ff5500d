"""Brokers that speak other protocols, measured beside ours: Kafka and NATS JetStream."""
