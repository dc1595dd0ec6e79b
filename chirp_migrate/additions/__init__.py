"""Additions of ``apply`` to a backend: the dependency, the vendored runtime, the scaffold.

The package may import ``transaction``, ``source`` and ``plans`` only.
"""
