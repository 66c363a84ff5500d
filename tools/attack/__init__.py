"""An attacker: a raw client with a codec of its own, and what it tries against a running broker."""
