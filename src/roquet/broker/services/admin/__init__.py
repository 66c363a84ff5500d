"""What operators ask a broker for and change in it."""
