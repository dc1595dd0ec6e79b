"""Training that repeats: all seeds, and loaders that yield the same batches in every run."""

from __future__ import annotations

import operator
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.randomness.seeding import worker_init_fn

#: The result of ``set_reproducible_training`` for ``worker_init_fn=``; pickle accepts it, for every start method.
seed_worker = worker_init_fn

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")


def set_reproducible_training(seed: int = 42) -> tuple[Callable[[int], None], torch.Generator]:
    """Seed Python, NumPy and PyTorch on all devices, and select deterministic algorithms of cuDNN.

        seed_worker, generator = set_reproducible_training(42)
        loader = DataLoader(dataset, shuffle=True, num_workers=4, worker_init_fn=seed_worker, generator=generator)

    Call it once, before the model and the loaders are built. Only the shell can set two things: the order of sets of
    strings (``PYTHONHASHSEED``), and the number of compute threads if sums depend on it (``OMP_NUM_THREADS``).

    Args:
        seed: 0 to 2**32 - 1, the seeds that NumPy accepts.

    Returns:
        ``seed_worker``, a ``worker_init_fn`` (its seeds differ between workers, epochs and ranks, and repeat with the
        run's seed), and ``generator``, seeded, for a loader's ``generator=``.

    Raises:
        ValueError: the seed is out of range.
        TypeError: the seed is no integer.
    """
    number = operator.index(seed)
    if not 0 <= number < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, not {number}")
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)  # all devices, those not yet initialised included
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    generator = torch.Generator()
    generator.manual_seed(number)
    return seed_worker, generator


def ensure_deterministic_dataloader(
    dataset: Any,
    batch_size: int,
    seed: int = 42,
    *,
    shuffle: bool = True,
    drop_last: bool = False,
    num_workers: int = 0,
    warn_only: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool | None = None,
) -> DataLoader[Any]:
    """Build a loader that yields the same batches in every run, and set up a training that repeats.

    The function seeds all generators (``set_reproducible_training``) and sets
    ``torch.use_deterministic_algorithms(True)``: call it before the model is built. The loader yields every sample by
    default, so it also serves validation (``shuffle=False``). Epochs differ in order and in augmentation. Batches
    repeat as long as the number of worker processes stays the same (with augmentation by this package, for any number).

    On CUDA, cuBLAS is deterministic only with ``CUBLAS_WORKSPACE_CONFIG=:4096:8``; the function sets it if it is
    missing.

    Args:
        dataset: as for ``DataLoader``.
        batch_size: as for ``DataLoader``.
        seed: 0 to 2**32 - 1.
        shuffle: as for ``DataLoader``, and by default True.
        drop_last: as for ``DataLoader``.
        num_workers: as for ``DataLoader``.
        warn_only: operations without a deterministic algorithm warn instead of raising an error.
        collate_fn: as for ``DataLoader``.
        pin_memory: as for ``DataLoader``.

    Raises:
        ValueError, TypeError: for ``seed``, as ``set_reproducible_training``.
    """
    _, generator = set_reproducible_training(seed)
    if torch.cuda.is_available():
        _set_cublas_workspace()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    return OptimalDataLoaderFactory.create_training_loader(
        dataset,
        batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        num_workers=num_workers,
        collate_fn=collate_fn,
        pin_memory=pin_memory,
        worker_init_fn=seed_worker,
        generator=generator,
    )


def _set_cublas_workspace() -> None:
    """Set the cuBLAS workspace that deterministic algorithms require; warn if the user has set another value."""
    given = os.environ.setdefault(_CUBLAS, _CUBLAS_DETERMINISTIC[0])
    if given not in _CUBLAS_DETERMINISTIC:
        warnings.warn(
            f"{_CUBLAS}={given} is not deterministic: set it to {_CUBLAS_DETERMINISTIC[0]}.", UserWarning, stacklevel=3
        )
