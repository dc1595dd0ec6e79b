"""Write all files of a plan or none, and undo runs of ``apply``: journal, lock, commit, recovery and rollback.

The package may import ``source`` and ``plans`` only.
"""
