"""Accounts of the cluster as accounts of the console."""
