"""Batches on the device of the training: moved there ahead of the training, or built there.

The package may import ``loading`` and the packages below it. ``factory`` uses it through ``placement``.
"""
