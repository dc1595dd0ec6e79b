"""``chirp-migrate verify``: measure whether a migrated project trains faster, and check that the training is the same.

The module :mod:`.sides` copies the project before and after the migration. The module :mod:`.timing` runs
:mod:`.runner` in a fresh interpreter for each version and round. The modules :mod:`.equivalence` and :mod:`.measures`
evaluate the results. The module :mod:`.verdict` decides the verdict, and :mod:`.verify_report` defines the report. The
package :mod:`chirp_migrate.training` finds the training and runs its processes.
"""
