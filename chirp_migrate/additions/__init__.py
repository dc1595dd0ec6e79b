"""Plan the files and lines that ``apply`` adds to a project: dependency, copy of the runtime, and scaffold.

The package may import only ``transaction``, ``source`` and ``plans``.
"""
