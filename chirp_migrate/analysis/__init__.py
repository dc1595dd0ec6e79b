"""Inferred semantics of code: values, datasets, loaders, devices and loops, from source that is never run.

Its folders build on each other: dataflow, then datasets and devices, then loaders, then loops. The package may import
``syntax`` and the packages below it. It never changes text; it only returns edits that belong to its findings.
"""
