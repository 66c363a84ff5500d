"""Cluster mode: the brokers that name servers know, over the remoting protocol."""
