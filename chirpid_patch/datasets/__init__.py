"""Datasets, and batched reading: ``gather`` reads batches, ``buffers`` provides their memory.

The package may import ``transforms`` and ``randomness``. It uses no loader: any ``DataLoader`` can read these datasets.
"""
