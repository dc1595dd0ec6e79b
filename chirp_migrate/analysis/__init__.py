"""Infer the semantics of code from its source, without running it: values, datasets, loaders, devices and loops.

The subpackages build on each other in this order: objects, dataflow, datasets, devices, loaders, loops, gain. The
package may import ``syntax`` and the packages that ``syntax`` may import. The package only reads code, and never
changes the text of a module.
"""
