"""`roquet doctor` and `roquet store`."""
