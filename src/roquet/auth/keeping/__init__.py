"""Users and policies kept: their file, what is in force, what is made at a start, copies."""
