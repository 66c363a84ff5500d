"""What the console shows and does, by subject; each is a row of `roquet.console.table`."""
