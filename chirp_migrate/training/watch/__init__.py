"""Observe the loaders of a training without a change to their batches; this code runs in the process that trains."""
