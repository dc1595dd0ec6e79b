"""Make a plan for a tree of files: read settings and suppressions, and run the rules in a pool of processes.

The package may import ``rules`` and the packages below ``rules``. It reads files, and never writes any.
"""
