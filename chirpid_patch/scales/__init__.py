"""One image at several scales (R-003).

The package may import ``datasets`` and the packages below it.
"""
