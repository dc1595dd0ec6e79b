"""Random transforms of a sample, or of a whole batch in place. A new transform subclasses ``BatchTransform``.

The package may import ``randomness``. It uses no dataset and no loader.
"""
