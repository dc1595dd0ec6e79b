"""Compare PyTorch's loader with the loaders of `chirpid_patch` on random programs."""
