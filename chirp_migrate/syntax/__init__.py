"""One parsed module: tree, spans, scopes and qualified names, names across files, and the project's own code style.

The package may import ``source`` and ``plans``. It contains nothing about PyTorch.
"""
