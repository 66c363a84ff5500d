"""POP consumption: messages taken one by one, without a queue of one's own."""
