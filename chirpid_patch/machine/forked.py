"""A function that detects forked processes. Operations of PyTorch on several threads would never end there."""

from __future__ import annotations

import os

import torch

_IMPORTED_IN = os.getpid()


def is_forked_process() -> bool:
    """Return whether this process was forked, and lacks the threads on which PyTorch would compute.

    A fork does not copy the threads of OpenMP. The first operation that needs several threads would wait for these
    threads forever. In PyTorch's worker processes the result is False, because they compute on a single thread.
    """
    return os.getpid() != _IMPORTED_IN and torch.get_num_threads() > 1
