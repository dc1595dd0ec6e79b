"""Random numbers of samples, seeds of workers and ranks, and restored generators.

The package imports no other package of the runtime.
"""
