"""Plans as plain data: edits, hunks and findings. The package imports no other part of the tool."""
