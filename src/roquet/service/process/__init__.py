"""How a process of ours runs: loop, signals, garbage collector, supervisor."""
