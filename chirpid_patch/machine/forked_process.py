"""A function that detects forked processes in which multi-threaded operations of PyTorch would never end."""

from __future__ import annotations

import os

import torch

_IMPORTED_IN = os.getpid()


def is_forked_process() -> bool:
    """Return whether this process is a fork in which PyTorch would wait for missing threads.

    A fork does not copy the threads of OpenMP. The first operation that needs several threads would wait for these
    threads forever. In PyTorch's worker processes, the result is False, because PyTorch computes on a single thread in
    a worker.
    """
    return os.getpid() != _IMPORTED_IN and torch.get_num_threads() > 1
