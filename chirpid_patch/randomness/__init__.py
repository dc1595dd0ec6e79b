"""Random numbers that belong to samples, seeds of workers and ranks, and generators put back as they were.

Imports nothing else of this package.
"""
