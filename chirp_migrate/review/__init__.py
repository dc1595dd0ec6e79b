"""Review a plan before ``apply``: read and write plan files, accept or refuse hunks, count the loaders.

Of the packages of ``chirp_migrate``, this package may import ``engine`` and the packages that ``engine`` may import.
"""
