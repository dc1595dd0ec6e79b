"""Classes that move batches to the device before the training requests them, or build batches on the device.

The module ``loading.placement`` defines the interface through which a loader uses these classes.
"""
