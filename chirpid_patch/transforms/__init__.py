"""Random transforms of a sample, or of a whole batch in place: a new one goes here, as a ``BatchTransform``.

May import ``randomness``. Knows no dataset and no loader.
"""
