"""The receive side of POP: pops, acknowledgements, and requests that wait."""
