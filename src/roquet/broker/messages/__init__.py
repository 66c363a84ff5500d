"""From a message to its record: appends, delays, what the broker writes in."""
