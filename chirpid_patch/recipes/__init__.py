"""Functions and classes of the best-practice guide for ChirpID: image folders, ranks, repeatable trainings.

The package may import ``factory``, ``monitor``, ``scales`` and the packages that these packages may import.
"""
