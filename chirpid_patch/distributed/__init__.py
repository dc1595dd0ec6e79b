"""Training on several ranks: the samples and the epoch of each rank.

The package may import ``loading`` and the packages below it.
"""
