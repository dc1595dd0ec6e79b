"""Random numbers that depend on the sample, seeds of workers and ranks, and contexts that restore random generators.

The package imports no other package of ``chirpid_patch`` except ``machine``.
"""
