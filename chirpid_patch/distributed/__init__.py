"""Training on several ranks: whose samples are whose, and in which epoch (R-001).

May import ``loading`` and what is below it.
"""
