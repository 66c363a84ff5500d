"""Jobs that follow topics with a state, and the rules of sessions."""
