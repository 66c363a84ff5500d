"""What a lake consists of: files, their catalog, and how tasks write them."""
