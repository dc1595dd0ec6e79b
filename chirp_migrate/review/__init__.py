"""Review a plan before ``apply``: read and write plan files, accept or refuse hunks, count the loaders.

This package may import the package ``engine``, and the packages that ``engine`` may import.
"""
