"""Make a plan for a tree of files: read settings and suppressions, and run the rules in a pool of processes.

The package may import ``rules`` and the packages that ``rules`` may import. The package reads files, and never writes
files.
"""
