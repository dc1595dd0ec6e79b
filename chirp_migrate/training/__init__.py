"""Run trainings in child processes, and watch their loaders.

The commands ``verify``, ``tune`` and ``doctor`` share this package.

The package finds the training of a project, runs it in separate processes, and records what its loaders do.
"""
