"""``chirp-migrate verify``: measure whether a migrated project trains faster, and whether its training is unchanged.

The package :mod:`.sides` makes a copy of the version before the migration, and a copy of the migrated version. The
package :mod:`.timing` starts new Python processes that train in these copies. Each of these processes runs
:mod:`.runner`. The package :mod:`.equivalence` compares the trainings of both copies, and :mod:`.metrics` computes
rates, waits and memory use. The module :mod:`.verdict` decides the verdict, and :mod:`.verify_report` defines the
report. The package :mod:`chirp_migrate.training` finds the training functions of the project, and starts and ends
processes.
"""
