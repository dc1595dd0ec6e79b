"""Edits of text: call arguments, imports, moved definitions, layout, removals.

It may import ``analysis`` and what is below. Every function returns edits; nothing here writes files.
"""
