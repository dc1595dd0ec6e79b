"""Datasets, and functions that read a whole batch from memory at once.

``gather`` reads the batches, and ``buffers`` provides their memory. The package may import ``transforms`` and
``randomness``. The package imports no loader, so any ``DataLoader`` can read these datasets.
"""
