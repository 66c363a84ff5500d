"""What every front may call, with what is wrapped around each call."""
