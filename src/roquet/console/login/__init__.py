"""Sign-in by others: an OpenID provider, a reverse proxy, accounts of the cluster."""
