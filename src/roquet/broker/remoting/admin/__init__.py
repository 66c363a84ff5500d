"""Adapters of what operators ask for and change."""
