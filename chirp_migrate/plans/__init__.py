"""Plans as plain data: edits, hunks and findings. The package imports no other package of ``chirp_migrate``."""
