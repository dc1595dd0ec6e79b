"""Convert the bytes of files to text and back, mask the magics of notebooks, and write diffs and files.

The only package of this project that this package may import is ``plans``.
"""
