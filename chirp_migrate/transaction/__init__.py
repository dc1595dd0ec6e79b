"""Writing of a plan to its tree, all or nothing, and its undoing: journal, lock, commit, recovery, rollback.

The package may import ``source`` and ``plans`` only.
"""
