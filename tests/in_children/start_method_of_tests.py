"""The start method of a test run, in the process of the tests and in every Python process that tests start.

The tests' ``conftest.py`` puts this folder on ``PYTHONPATH``, so that ``sitecustomize`` here runs in each of them.
"""

from __future__ import annotations

import os

#: Names of the variables that processes started by tests inherit.
METHOD = "CHIRP_TESTS_START_METHOD"
FORKS = "CHIRP_TESTS_FORKS"

#: Modules that a fork server imports once, so that not every worker process does.
PRELOADED = ["torch.utils.data", "chirpid_patch.loading.loader"]


def use(method: str) -> None:
    """Make ``method`` the default start method, as a platform does: programs may still set or name another."""
    import multiprocessing

    default = multiprocessing.context._default_context
    default._default_context = default.get_context(method)
    # Python 3.14 does the same by itself: the default comes first.
    ordered = sorted(multiprocessing.get_all_start_methods(), key=lambda name: name != method)
    multiprocessing.get_all_start_methods = lambda: list(ordered)
    if method == "forkserver":
        multiprocessing.set_forkserver_preload(PRELOADED)


def note_forks(path: str) -> None:
    """Append one byte to the file at ``path`` whenever this process, or a process that it forks, forks."""

    def note() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(handle, b".")
        os.close(handle)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note)
