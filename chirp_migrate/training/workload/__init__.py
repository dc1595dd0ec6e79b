"""Define the training that the commands run: its entry points, its sizes and its data.

An entry point starts a training. Entry points are functions in the project's source, training calls that the user's
workload function returns, or a script.
"""
