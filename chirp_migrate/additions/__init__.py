"""What ``apply`` adds to a backend: the dependency, the vendored runtime and the scaffold.

The package may import ``transaction``, ``source`` and ``plans`` only.
"""
