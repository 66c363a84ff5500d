"""POP consumption: what the broker keeps of messages in flight, and their redelivery."""
