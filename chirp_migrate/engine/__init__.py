"""From a tree of files to a plan: settings, suppressions, rules on one file, the pool of worker processes.

It may import ``rules`` and what is below; it reads files and writes none.
"""
