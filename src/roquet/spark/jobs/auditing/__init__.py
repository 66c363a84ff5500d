"""Parts of the job `audit`: what is compared first, and which rows are read then."""
