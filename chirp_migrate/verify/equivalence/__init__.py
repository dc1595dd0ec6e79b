"""Whether both sides train the same: what each takes from its loaders, and the first difference."""
