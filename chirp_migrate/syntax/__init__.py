"""One parsed module: tree, spans, scopes and qualified names, names across files, and the project's own code style.

It may import ``source`` and ``plans``; it knows Python, and nothing of PyTorch.
"""
