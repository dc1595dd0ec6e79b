"""Functions that find the largest batch size that fits in memory, and that watch the memory of a training.

The functions are independent of any loader.
"""
