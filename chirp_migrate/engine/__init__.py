"""From a tree of files to a plan: settings, suppressions, rules on one file, the pool of worker processes.

The package may import ``rules`` and the packages below it. It reads files and writes none.
"""
