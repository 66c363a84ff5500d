"""Members of consumer groups: this proxy's own, and those that other proxies have told of."""
