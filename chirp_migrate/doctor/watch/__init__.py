"""Record the loaders, datasets and models of a training, and the processes that read samples (in the child process)."""
