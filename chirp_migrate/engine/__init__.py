"""Make a plan for a tree of files: read the settings, run the rules in a pool of processes, and suppress findings.

From ``chirp_migrate``, this package may import only ``rules`` and the packages that ``rules`` may import. The package
reads files, and never writes files.
"""
