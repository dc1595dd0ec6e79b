"""Review a plan before ``apply``: read and write plan files, accept or refuse hunks, and count the loaders.

The package may import ``engine`` and the packages below it.
"""
