"""`roquet pipeline`."""
