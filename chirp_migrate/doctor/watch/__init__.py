"""Recording in the child process: loaders, processes that read, datasets and models during a training."""
