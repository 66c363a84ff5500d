"""How the broker is put together, by subject; only `broker/app.py` uses it."""
