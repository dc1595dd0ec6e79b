"""Functions that return the rank of this process and the number of ranks."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist


def current_rank() -> int:
    """Return the rank of this process.

    If ``torch.distributed`` is initialised, the function returns the rank from ``torch.distributed``. Otherwise the
    rank is the environment variable ``RANK``, or 0 without this variable.
    """
    return dist.get_rank() if _is_initialized() else _integer_from_environment("RANK", 0)


def current_world_size() -> int:
    """Return the number of ranks.

    If ``torch.distributed`` is initialised, the function returns the world size from ``torch.distributed``. Otherwise
    the number is the environment variable ``WORLD_SIZE``, or 1 without this variable.
    """
    return dist.get_world_size() if _is_initialized() else max(_integer_from_environment("WORLD_SIZE", 1), 1)


def ranks_on_this_machine() -> int:
    """Return the number of ranks that share the CPUs of this machine, at least 1.

    The number comes from the environment variable ``LOCAL_WORLD_SIZE``, which torchrun sets. Without this variable, the
    result is the number of all ranks in ``torch.distributed``. If the machine has CUDA devices, the result is at most
    the number of these devices. If ``torch.distributed`` is not initialised either, the result is 1.
    """
    local_size = _integer_from_environment("LOCAL_WORLD_SIZE", 0)
    if local_size or not _is_initialized():
        return max(local_size, 1)
    return min(dist.get_world_size(), torch.cuda.device_count() or dist.get_world_size())


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def _integer_from_environment(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default
