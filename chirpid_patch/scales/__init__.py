"""One image at several scales (R-003).

May import ``datasets`` and what is below them.
"""
