"""Functions that read the CPUs, memory and GPUs of this machine, and the share that this process may use."""
