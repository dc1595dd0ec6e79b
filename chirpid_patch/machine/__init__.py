"""The CPUs, memory and GPUs of this machine, and the part of them that this process may use.

The package imports no other package of the runtime.
"""
