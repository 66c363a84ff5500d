"""Administration: what tools ask a broker for and change in it."""
