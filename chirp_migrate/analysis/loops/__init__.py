"""Loops over loaders: where their batches come from, and what waits for a device."""
