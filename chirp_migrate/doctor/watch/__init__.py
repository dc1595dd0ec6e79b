"""Record loaders, datasets, models and worker processes of a training. This code runs in the child of ``doctor``."""
