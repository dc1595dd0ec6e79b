"""One image at several scales (R-003).

May import ``memory``, and datasets with what is below them.
"""
