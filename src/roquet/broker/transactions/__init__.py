"""Transactions: half messages, what became of them, and asking producers about the open ones."""
