"""The pair of master and slave: both sides, and what a slave copies beside the log."""
