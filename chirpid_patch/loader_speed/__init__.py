"""Functions that measure how fast a loader is, search for faster settings, and save the settings found.

All measurements use the functions in the module ``measure``.
"""
