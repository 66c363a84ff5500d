"""Bodies that only RocketMQ's servers have: of controllers, epochs, cold reads, static topics."""
