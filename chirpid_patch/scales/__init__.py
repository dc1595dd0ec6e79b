"""One image at several scales.

The package may import ``datasets`` and the packages below it.
"""
