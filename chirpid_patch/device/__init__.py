"""Batches on the device that trains: moved there ahead of the training, or made there.

May import ``loading``, ``tune``, ``distributed`` and what is below them. ``placement`` is its door to ``factory``.
"""
