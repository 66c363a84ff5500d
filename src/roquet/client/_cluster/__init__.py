"""One client's cluster: its session, routes, calls to brokers and name servers."""
