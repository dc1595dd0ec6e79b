"""Inferred semantics of code: values, datasets, loaders, devices and loops, from source that is never run.

Its folders build on each other: dataflow, then datasets and devices, then loaders, then loops. It may import
``syntax`` and what is below; it never changes text, but for edits that belong to what it found.
"""
