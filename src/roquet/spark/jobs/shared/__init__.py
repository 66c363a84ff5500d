"""What several jobs use: queries, metrics, reports, the page."""
