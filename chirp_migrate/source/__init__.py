"""Conversion of bytes of files to text and back: encodings, notebooks and their magics, diffs, and atomic writes.

The package may import ``plans`` only.
"""
