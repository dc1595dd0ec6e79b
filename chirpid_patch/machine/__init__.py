"""Functions that read the CPUs, memory and GPUs of this machine, and the limits for this process."""
