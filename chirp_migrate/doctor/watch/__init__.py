"""Record the loaders, datasets, models and workers of a training, in the child process of ``doctor``."""
