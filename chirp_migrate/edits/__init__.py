"""Edits of source text that change call arguments, imports and layout, move definitions, and remove dead code.

The package may import ``analysis`` and the packages below it. Every function returns edits; no function writes files.
"""
