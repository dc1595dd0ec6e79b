"""One image at several scales, and several models over one pass (R-003).

May import ``memory``, and datasets with what is below them.
"""
