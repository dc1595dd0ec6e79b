"""Write all files of a plan or none, and undo such runs: the journal, the lock, commit, recovery and rollback.

The package may import ``source`` and ``plans`` only.
"""
