"""Commands for what RocketMQ's servers have and ours have not."""
