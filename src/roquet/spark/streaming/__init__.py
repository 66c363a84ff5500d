"""What only streams have: micro-batches that wait to be large enough, lag for consumer tools."""
