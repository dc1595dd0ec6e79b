"""Write either all files of a plan or no file, and undo runs of ``apply``.

The modules are the journal, the lock, the commit, the recovery and the rollback. Of the packages of ``chirp_migrate``,
this package may import only ``source`` and ``plans``.
"""
