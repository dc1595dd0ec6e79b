"""What this machine has, and what this process may use of it: CPUs, memory, GPUs.

Imports nothing else of this package.
"""
