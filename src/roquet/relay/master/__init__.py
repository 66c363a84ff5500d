"""The master service: a pure state machine, and the shell that ticks it."""
