"""Record loaders, datasets, models and processes that read samples during a training, in the child process."""
