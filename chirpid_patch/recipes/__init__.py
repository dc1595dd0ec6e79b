"""Loaders for common cases, with the names of the guides: folders of images, ranks, repeatable, wrapped.

The package may import ``factory``, ``monitor``, ``scales`` and the packages below them.
"""
