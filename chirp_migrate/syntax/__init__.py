"""Parse a project's modules: trees, spans, scopes, qualified names, names across files, and the project's code style.

Of the packages of this project, this one may import only ``source`` and ``plans``. It contains nothing about PyTorch.
"""
