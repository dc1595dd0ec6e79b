"""Classes that move batches to the device of the training in advance, or build batches on the device.

The package may import ``loading`` and the packages that ``loading`` may import. ``factory`` uses this package through
the interface in ``loading.placement``.
"""
