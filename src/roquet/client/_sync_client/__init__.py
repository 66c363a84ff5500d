"""The blocking client, as far as it is written by `python -m tools.sync_client`."""
