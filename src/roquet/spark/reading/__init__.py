"""Reading topics, as a batch and as a stream: plans on the driver, pulls in tasks."""
