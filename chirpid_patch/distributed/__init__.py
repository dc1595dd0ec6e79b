"""Loaders for training on several ranks: they divide the samples, and seed each rank and epoch.

The package may import ``loading`` and the packages below it.
"""
