"""What the commands over a cluster do; `tree.py` declares them."""
