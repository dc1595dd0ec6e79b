"""Write either all files of a plan or no file, and undo runs of ``apply``.

The modules are the journal, the lock, the commit, the recovery and the rollback. These modules import only packages of
lower layers, such as ``source`` and ``plans`` (see the layers in ``pyproject.toml``).
"""
