"""Bytes of files ↔ text: encodings, notebooks and their magics, diffs, and files written wholly or not at all.

It may import ``plans`` only.
"""
