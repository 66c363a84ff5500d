"""What a store says of itself: its release, its owner, whether it is a true copy."""
