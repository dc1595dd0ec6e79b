"""Parse a project's modules: trees, spans, scopes, qualified names, names across files, and the project's code style.

From this repository, the package may import only ``source`` and ``plans``. It contains no code about PyTorch.
"""
