"""The remoting port of a proxy: clients of RocketMQ's own protocol that reach the proxy alone.

Each client has connections of its own from the proxy to brokers, and what it asks goes over them as
it came, its signature included. So brokers know every client: they judge its rights, count it as
a member of its groups beside those of other proxies and those without a proxy, and what they ask of
it comes back over the same connection.
"""
