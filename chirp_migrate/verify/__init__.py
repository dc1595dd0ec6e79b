"""Proof that a migrated backend trains faster, and trains the same: ``chirp-migrate verify``.

The way of a number: :mod:`.sides` rebuilds the tree before the migration, :mod:`.timing` runs :mod:`.runner` once per
side and round in a fresh interpreter, :mod:`.equivalence` and :mod:`.measures` judge what came back, :mod:`.verdict`
decides, :mod:`.document` says it. What is trained, and how its processes are run, is in :mod:`chirp_migrate.training`.
"""
