"""What loops over loaders do with their batches: where batches come from, and what waits for a device."""
