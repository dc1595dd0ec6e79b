"""Recording inside the child process: what loaders, reading processes, datasets and models do while a training runs."""
