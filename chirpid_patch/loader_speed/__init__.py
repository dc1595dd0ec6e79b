"""Measurement of loading speed, and search for faster settings, with remembered choices.

The package may import ``loading`` and the packages below it. ``measure`` is the base of all measurements here and in
``monitor``.
"""
