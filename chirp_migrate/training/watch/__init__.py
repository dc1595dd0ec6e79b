"""Observe the loaders in the process that trains, without a change to their batches."""
