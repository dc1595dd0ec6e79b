"""Run the trainings of a project in child processes, and record what their loaders do.

The package also finds the training functions of a project. The commands ``verify``, ``tune`` and ``doctor`` use the
package.
"""
