"""Functions that find out which CPUs, memory and GPUs this machine has, and how much of them this process may use.

The package imports no other package of ``chirpid_patch``.
"""
