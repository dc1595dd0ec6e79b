"""Comparison of both versions: the batches of each, and the first difference."""
