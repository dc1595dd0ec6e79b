"""Training on several ranks: whose samples are whose, and what the ranks found put together (R-001).

May import ``loading`` and what is below it.
"""
