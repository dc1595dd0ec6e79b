"""Define plans as plain data: edits, hunks and findings. This package imports no other package of ``chirp_migrate``."""
