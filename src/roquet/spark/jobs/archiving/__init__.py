"""What `archive` and `replay` do around the lake: following topics, upkeep, waves."""
