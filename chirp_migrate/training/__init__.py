"""Find the training of a project, run it in child processes, and watch its loaders: for verify, tune and doctor."""
