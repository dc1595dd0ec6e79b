"""Datasets, and reading their samples a batch at a time."""
