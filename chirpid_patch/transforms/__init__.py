"""Random transforms of a single sample, or of a whole batch in place.

A new transform is a subclass of ``BatchTransform``.

The package may import ``randomness``. The package uses no dataset and no loader.
"""
