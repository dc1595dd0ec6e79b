"""Watch the loaders in the process that trains, without changing their batches."""
