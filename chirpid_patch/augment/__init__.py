"""Random transforms of a sample, or of a whole batch in place."""
