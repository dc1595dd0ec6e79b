"""A story as lines for a terminal."""
