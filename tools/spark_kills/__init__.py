"""Kills of the Spark sink: driver, tasks, executor and broker, judged from outside."""
