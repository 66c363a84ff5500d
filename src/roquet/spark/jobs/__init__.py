"""Jobs over messages that operators of a broker want, each a function `run`."""
