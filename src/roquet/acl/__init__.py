"""Access control with accounts and signatures: RocketMQ 4.x's ACL, and its client side."""
