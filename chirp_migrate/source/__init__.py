"""Convert the bytes of files to text and back. Also: notebooks with their magics, diffs, and atomic writes.

Of the packages of this project, this one may import only ``plans``.
"""
