"""Whether both versions train the same: the batches of each, and the first difference."""
