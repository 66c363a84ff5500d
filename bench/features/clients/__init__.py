"""One message's CPU in clients of other brokers: programs for environments of their own.

`python -m bench.features.client --peers` makes the environments and runs them. Each is called with
address, topic, number of messages and the names of cases, and prints one JSON object: CPU in
microseconds a message by case. They import nothing of ours.
"""
