"""Administration of what RocketMQ's servers have and ours have not.

Our own servers refuse these requests with code 3.
"""
