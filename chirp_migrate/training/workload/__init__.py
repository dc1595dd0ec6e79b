"""Define the training to run: its entry points, its sizes and its data.

The entry points are functions in the project's source, calls of the user's workload function, or a script.
"""
