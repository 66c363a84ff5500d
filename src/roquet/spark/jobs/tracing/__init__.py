"""The parts of the job `trace`: columns, queries, a message's story, the page."""
