"""Loaders for common cases, by the names of the guides: from folders of images, for ranks, repeatable, wrapped.

May import ``factory``, ``monitor``, ``scales`` and what is below them.
"""
