"""The memory that a training uses, and actions for the case that memory is short.

The package may import ``device`` and ``machine``. It uses no loader.
"""
