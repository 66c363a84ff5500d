"""What one request may cost everybody else: turns of the loop, measured."""
