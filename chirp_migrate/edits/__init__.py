"""Edits of text: call arguments, imports, moved definitions, layout, removals.

The package may import ``analysis`` and the packages below it. Every function returns edits; no function writes files.
"""
