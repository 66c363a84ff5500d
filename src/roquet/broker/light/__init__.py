"""Light topics: who subscribes to which, what is there for whom, pops, and their end."""
