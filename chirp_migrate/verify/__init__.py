"""Proof that a migrated backend trains faster, and trains the same: ``chirp-migrate verify``.

The way of a number: :mod:`.workload` finds the backend's training entry points, :mod:`.snapshot` rebuilds the
tree before the migration, :mod:`.process` runs :mod:`.runner` once per side and round in a fresh interpreter,
:mod:`.equivalence` and :mod:`.statistics` judge what came back, :mod:`.verdict` decides, :mod:`.report` prints.
"""
