"""`roquet pub`, `sub` and `cat`."""
