"""What Spark's driver and tasks ask a cluster, and how long they wait for it."""
