"""The merge buffer of POP: checkpoints that meet their acknowledgements before they are stored."""
