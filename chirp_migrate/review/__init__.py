"""What people and machines look at between plan and commit: plan file, hunks accepted or refused, the account of sites.

It may import ``engine`` and what is below.
"""
