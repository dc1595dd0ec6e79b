"""Random transforms for single samples and for whole batches.

A call with a single sample does not change the sample. Loaders pass whole batches, which most transforms change in
place. To write a new transform, subclass ``BatchTransform``.
"""
