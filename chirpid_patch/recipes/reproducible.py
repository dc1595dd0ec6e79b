"""Functions that make a training repeatable.

The functions set all seeds, and build loaders that yield the same batches in every run.
"""

from __future__ import annotations

import operator
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.torch_private import DataLoader

#: The ``worker_init_fn`` that ``set_reproducible_training`` returns.
seed_worker = worker_init_fn

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")


def set_reproducible_training(seed: int = 42) -> tuple[Callable[[int], None], torch.Generator]:
    """Seed the generators of Python, NumPy and PyTorch, and select deterministic algorithms of cuDNN.

        seed_worker, generator = set_reproducible_training(42)
        loader = DataLoader(dataset, shuffle=True, num_workers=4, worker_init_fn=seed_worker, generator=generator)

    Call this function once, before the model and the loaders are built. For a repeatable training, also set two
    environment variables before the program starts. ``PYTHONHASHSEED`` fixes the order of sets of strings.
    ``OMP_NUM_THREADS`` fixes the number of compute threads. Another number of threads can change the rounding of sums.

    Args:
        seed: integer from 0 to 2**32 - 1, which is the range that NumPy accepts.

    Returns:
        Two values for the arguments ``worker_init_fn`` and ``generator`` of a loader. The first value is a function
        that seeds each worker. Workers, epochs and ranks have different seeds. In another run with the same ``seed``,
        the workers have the same seeds. The second value is a seeded generator.

    Raises:
        ValueError: ``seed`` is out of range.
        TypeError: ``seed`` is not an integer.
    """
    number = operator.index(seed)
    if not 0 <= number < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, not {number}")
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)  # on all devices, even if they are not initialised yet
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
    """Make the training repeatable, and build a loader that yields the same batches in every run.

    The function calls ``set_reproducible_training`` and ``torch.use_deterministic_algorithms(True)``. Call the function
    before the model is built, so that the initial weights are also the same in every run. The batches are the same in
    every run with the same number of worker processes. With the augmentation of this package, the batches are the same
    for any number of worker processes. Different epochs have different orders and different augmentation. For
    validation, pass ``shuffle=False``.

    On CUDA, cuBLAS is deterministic only if the environment variable ``CUBLAS_WORKSPACE_CONFIG`` is ``:4096:8`` or
    ``:16:8``. If the variable is missing, the function sets the variable to ``:4096:8``.

    Args:
        dataset: as for ``DataLoader``.
        batch_size: as for ``DataLoader``.
        seed: integer from 0 to 2**32 - 1.
        shuffle: as for ``DataLoader``, but True by default.
        drop_last: as for ``DataLoader``.
        num_workers: as for ``DataLoader``.
        warn_only: whether an operation without a deterministic algorithm only warns, instead of raising an error.
        collate_fn: as for ``DataLoader``.
        pin_memory: as for ``create_loader``.

    Raises:
        ValueError: ``seed`` is out of range.
        TypeError: ``seed`` is not an integer.
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
    """Set the environment variable that makes cuBLAS deterministic. Warn if the user has set another value."""
    given = os.environ.setdefault(_CUBLAS, _CUBLAS_DETERMINISTIC[0])
    if given not in _CUBLAS_DETERMINISTIC:
        warnings.warn(
            f"cuBLAS is not deterministic with {_CUBLAS}={given}: set {_CUBLAS}={_CUBLAS_DETERMINISTIC[0]}.",
            UserWarning,
            stacklevel=3,
        )
