"""Access control 2.0: users, policies, and what they decide. `roquet.acl` has that of 4.x."""
