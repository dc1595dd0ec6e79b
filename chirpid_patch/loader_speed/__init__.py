"""How fast loading is, and what would be faster: measured and remembered.

May import ``loading`` and what is below it. ``measure`` is what all measuring here and in ``monitor`` is made of.
"""
