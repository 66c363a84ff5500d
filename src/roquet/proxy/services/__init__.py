"""What each call does, by the broker's API."""
