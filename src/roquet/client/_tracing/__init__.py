"""What clients that trace write about their messages, in RocketMQ's format."""
