"""The queues of a consumer: which are its own, fetching them, locks and offsets."""
