"""What a message carries on the wire: ids, flags, batches, compressed bodies."""
