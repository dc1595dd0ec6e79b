"""Find calls that build loaders, the roles of loaders, and code that loads batches without a loader.

The role of a loader is training, validation or test.
"""
