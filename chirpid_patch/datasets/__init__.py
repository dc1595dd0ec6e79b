"""Datasets, and functions that read a whole batch from memory at once.

The module ``gather`` reads the batches. The module ``buffers`` provides memory for the batches. The datasets also work
with PyTorch's ``DataLoader``.
"""
