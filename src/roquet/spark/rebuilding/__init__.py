"""Parts of the job `rebuild`: a store's derived files out of nothing but its commit log."""
