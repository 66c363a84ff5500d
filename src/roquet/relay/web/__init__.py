"""The relay's HTTP side: what there is to see, and what an operator may change."""
