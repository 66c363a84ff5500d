"""The remoting front of sends: frames, the adapter, and the batching of what was read together."""
