"""Review between plan and commit: plan file, hunks accepted or refused, the ledger of loaders.

It may import ``engine`` and what is below.
"""
