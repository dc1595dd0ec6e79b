"""Several loaders read as one, with one budget of worker processes (R-001)."""
