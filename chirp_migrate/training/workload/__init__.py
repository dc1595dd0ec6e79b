"""The training to run: entry points found in the source or returned by a hook or command, sizes and data."""
