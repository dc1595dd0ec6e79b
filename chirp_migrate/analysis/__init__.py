"""Infer the semantics of code from its source, without running it: values, datasets, loaders, devices and loops.

In the list objects, dataflow, datasets, devices, loaders, loops, gain, each subpackage may only import subpackages to
its left. The package may import ``syntax`` and the packages that ``syntax`` may import. The package only reads code,
and never changes the text of a module.
"""
