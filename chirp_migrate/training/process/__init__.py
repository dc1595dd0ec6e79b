"""Start child processes that train, let them take turns, read their output, and end them."""
