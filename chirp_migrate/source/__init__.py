"""Convert the bytes of files to text and back, mask the magics of notebooks, and write diffs and files.

This package may import ``plans``, but no other package of ``chirp_migrate``.
"""
