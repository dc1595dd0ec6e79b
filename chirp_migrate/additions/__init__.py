"""The files and lines that ``apply`` adds to a backend: dependency, vendored runtime and scaffold.

The package may import ``transaction``, ``source`` and ``plans`` only.
"""
