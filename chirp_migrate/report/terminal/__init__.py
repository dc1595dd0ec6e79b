"""A report as lines for a terminal."""
