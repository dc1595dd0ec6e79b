"""Datasets, and reading their samples a batch at a time: ``gather`` reads, ``buffers`` lends a batch its memory.

May import ``transforms`` and ``randomness``. Knows no loader: any ``DataLoader`` reads these datasets.
"""
