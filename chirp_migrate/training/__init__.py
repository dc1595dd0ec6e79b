"""Running and watching of trainings in child processes, shared by ``verify`` and ``tune``.

The package finds the training, runs it in separate processes, and watches its loaders. It may import ``source``.
"""
