"""Commit logs that are in an object store or HDFS, read by ranges."""
