"""Several loaders read as one, with one budget of worker processes (R-001).

The package may import ``factory`` and the packages below it.
"""
