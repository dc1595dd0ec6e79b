"""Parse a project's modules: trees, spans, scopes, qualified names, names across files, and the project's code style.

Of the packages of this project, this package may import only ``source`` and ``plans``. No code in it is about PyTorch.
"""
