"""Functions that measure how fast a loader is, search for faster settings, and save the settings found.

The module ``measure`` contains the functions for all measurements.
"""
