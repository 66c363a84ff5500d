"""The broker's tables: topics, groups, offsets, filters, and the files they are kept in."""
