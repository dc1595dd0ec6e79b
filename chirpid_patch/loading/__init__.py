"""The loader: in this process, ahead in threads, or in worker processes."""
