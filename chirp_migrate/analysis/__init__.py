"""Infer the semantics of code from its source, without running it: values, datasets, loaders, devices and loops.

The subpackages build on each other in this order: dataflow, then datasets and devices, then loaders, then loops. This
package may import ``syntax`` and the packages that ``syntax`` may import. Its functions never change text; they return
edits.
"""
