"""Find calls that build loaders, roles of loaders, and code that loads batches without a loader."""
