"""Timer messages: delivered at any time that the sender names."""
