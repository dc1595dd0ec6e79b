"""How much memory a training uses, and what to do when it is short.

May import ``device`` and ``machine``. Knows no loader.
"""
