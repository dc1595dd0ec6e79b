"""Parse the modules of a project, and find spans, scopes, qualified names, names across files, and the code style.

From this repository, the package may import only ``source`` and ``plans``. The package contains no code about PyTorch.
"""
