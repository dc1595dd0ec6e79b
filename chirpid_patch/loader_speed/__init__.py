"""Functions that measure how fast a loader is, search for faster settings, and save the settings found.

The package may import ``loading`` and the packages that ``loading`` may import. All measurements in this package and in
``monitor`` use the functions in ``measure``.
"""
