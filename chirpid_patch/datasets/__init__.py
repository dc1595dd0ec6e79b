"""Datasets, and functions that read a whole batch of their samples from memory at once.

The module ``gather`` reads the batches. The module ``batch_memory`` provides reusable memory for large batches.
PyTorch's ``DataLoader`` can also load these datasets.
"""
