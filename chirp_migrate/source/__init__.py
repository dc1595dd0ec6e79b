"""Convert the bytes of files to text and back, mask the magics of notebooks, and write diffs and files.

Of the packages of ``chirp_migrate``, this package may import only ``plans``.
"""
