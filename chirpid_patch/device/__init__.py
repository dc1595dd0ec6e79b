"""Classes that move batches to the device of the training in advance, or build batches on the device.

The package may import ``loading`` and the packages below it. ``factory`` uses this package through ``placement``.
"""
