"""Write either all files of a plan or no file, and undo runs of ``apply``.

The modules are the journal, the lock, the commit, the recovery and the rollback. The package may import only ``source``
and ``plans``.
"""
