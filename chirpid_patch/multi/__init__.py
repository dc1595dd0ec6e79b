"""Several loaders read as one, with one budget of worker processes (R-001).

May import ``factory`` and what is below it.
"""
