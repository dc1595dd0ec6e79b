"""Functions that find the largest batch size that fits in memory, and that watch the memory of a training.

The package uses no loader.
"""
