"""Pages of docs that are written from the code's own tables, and their pictures."""
