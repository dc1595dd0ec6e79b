"""Proof that a migrated backend trains faster, and trains the same: ``chirp-migrate verify``.

The modules in order of the data: :mod:`.sides` rebuilds the tree before the migration. :mod:`.timing` runs
:mod:`.runner` once for each version and round, in a fresh interpreter. :mod:`.equivalence` and :mod:`.measures` judge
the results. :mod:`.verdict` decides, and :mod:`.verify_report` defines the report. :mod:`chirp_migrate.training`
defines the training and runs its processes.
"""
