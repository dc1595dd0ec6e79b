"""Review between plan and commit: the plan file, accepting and refusing of hunks, the ledger of loaders.

The package may import ``engine`` and the packages below it.
"""
