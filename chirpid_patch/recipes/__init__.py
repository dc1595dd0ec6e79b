"""Loaders for common cases, with the names of the best-practice guide: image folders, ranks, repeatable trainings.

The package may import ``factory``, ``monitor``, ``scales`` and the packages below them.
"""
