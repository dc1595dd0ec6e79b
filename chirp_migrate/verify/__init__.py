"""``chirp-migrate verify``: measure whether a migrated project trains faster, and check that the training is the same.

docs/architecture.md describes the modules. docs/verify.md describes how ``verify`` decides.
"""
