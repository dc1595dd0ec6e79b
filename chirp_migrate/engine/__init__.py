"""Make a plan for a tree of files: read the settings, run the rules in a pool of processes, and suppress findings.

Of the packages of ``chirp_migrate``, this package may import ``rules`` and the packages that ``rules`` may import. The
package reads files, and never writes files.
"""
