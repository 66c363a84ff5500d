"""The demonstration: real flights through broker, Spark and audit. `make demo`."""
