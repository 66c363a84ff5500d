"""Alerts: rules that judge what is seen of a cluster, and the webhook that tells of them."""
