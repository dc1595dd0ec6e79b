"""Find calls that build loaders, the roles of loaders, and code that loads batches without a loader."""
