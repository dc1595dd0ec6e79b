"""Several loaders read as one, with one budget of worker processes.

The package may import ``factory`` and the packages below it.
"""
