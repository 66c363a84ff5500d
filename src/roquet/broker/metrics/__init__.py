"""What is counted: traffic, daily totals, gauges, slow groups, how long answers took."""
