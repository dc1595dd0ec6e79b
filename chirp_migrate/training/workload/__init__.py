"""What is trained: entry points found in the source or given by a hook or command, sizes and data."""
