"""`roquet mqadmin`: RocketMQ's admin commands under their own names, flags and columns.

Scripts and runbooks written for RocketMQ's tool go on working, without a JVM.
"""
