"""Looking after a store while its broker runs: old files, and files that changed."""
