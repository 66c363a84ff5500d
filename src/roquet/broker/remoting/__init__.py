"""The remoting front: request fields to API requests, results and refusals to response codes."""
