"""The Spark sources, sink and jobs, measured."""
