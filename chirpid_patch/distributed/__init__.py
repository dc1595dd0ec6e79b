"""Samplers and epoch counters for training on several ranks, which divide the samples and seed each rank and epoch.

The package may import ``loading`` and the packages that ``loading`` may import.
"""
