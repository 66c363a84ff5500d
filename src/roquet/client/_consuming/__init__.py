"""What consumers do with the messages they have: hand them out, one by one or in batches."""
