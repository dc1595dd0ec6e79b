"""Loops over loaders: the source of their batches, and expressions that wait for a device."""
