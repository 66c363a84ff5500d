"""The 96 commands of RocketMQ's mqadmin, as they are declared."""
