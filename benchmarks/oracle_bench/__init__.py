"""PyTorch's loader and ours on generated programs: same batches, errors, calls, random states, traces."""
