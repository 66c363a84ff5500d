"""The rules of the broker behind its API: what may be done, and what is done. No transport."""
