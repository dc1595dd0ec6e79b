"""Define the training to run: its entry points, its sizes and its data."""
