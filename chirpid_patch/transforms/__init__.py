"""Random transforms for single samples, and for whole batches in place.

To write a new transform, subclass ``BatchTransform``.

"""
