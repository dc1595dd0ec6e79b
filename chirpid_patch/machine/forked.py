"""Detection of forked copies of a process, in which an operation on several threads may never end."""

from __future__ import annotations

import os

import torch

_IMPORTED_IN = os.getpid()


def is_threadless_copy() -> bool:
    """Return whether this process is a forked copy that lacks the threads which PyTorch would compute on.

    The threads of OpenMP do not survive a fork: the first operation that is large enough for several of them waits
    for ever. PyTorch's worker processes compute on one thread, so nothing waits there.
    """
    return os.getpid() != _IMPORTED_IN and torch.get_num_threads() > 1
