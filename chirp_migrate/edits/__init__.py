"""Edit source text: change call arguments, imports and layout, move definitions, and remove dead code.

From ``chirp_migrate``, this package may import only ``analysis`` and the packages that ``analysis`` may import. The
functions return edits, and never write files.
"""
