"""What the native core may answer: rows of topics, groups, accounts, handed down as data."""
