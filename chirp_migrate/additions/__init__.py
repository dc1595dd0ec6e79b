"""Plan the files and lines that ``apply`` adds to a project.

They are the dependency on the runtime (the package ``chirpid_patch``) or a copy of the runtime, and the scaffold, which
consists of modules, a notebook and tests.

Of the packages of ``chirp_migrate``, this package may import only ``transaction``, ``source`` and ``plans``.
"""
