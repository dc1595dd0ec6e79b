"""A plan written to its tree, all or nothing, and taken back: journal, lock, commit, recovery, rollback.

It may import ``source`` and ``plans`` only.
"""
