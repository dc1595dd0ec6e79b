"""Watching of loaders inside the process that trains, without changing their batches."""
