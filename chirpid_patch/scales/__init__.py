"""A dataset and a training step for models that are trained on each image at several scales.

The package may import ``datasets`` and the packages that ``datasets`` may import.
"""
