"""Batches on the device that trains: moved there ahead of the training, or made there.

May import ``loading`` and what is below it. ``placement`` is its door to ``factory``.
"""
