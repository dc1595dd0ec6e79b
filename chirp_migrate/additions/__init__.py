"""The files and lines that ``apply`` adds to a backend: dependency, copy of the runtime, and scaffold.

The package may import ``transaction``, ``source`` and ``plans`` only.
"""
