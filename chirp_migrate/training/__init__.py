"""Run the trainings of a project in child processes, and record what their loaders do.

The commands ``verify``, ``tune`` and ``doctor`` use this package. The package also finds the training functions.
"""
