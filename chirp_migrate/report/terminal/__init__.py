"""Print a report on a terminal."""
