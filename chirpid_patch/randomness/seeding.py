"""A ``worker_init_fn`` that seeds the random generators of worker processes."""

from __future__ import annotations

import random

import numpy as np
import torch

from chirpid_patch.machine.ranks import current_rank


def worker_init_fn(worker_id: int) -> None:
    """Seed the generators of ``random``, NumPy and PyTorch in a worker process of a DataLoader.

    In a worker, ``torch.initial_seed()`` is the base seed of the loader plus the number of the worker. The base seed is
    new in each epoch, so workers and epochs have different seeds. All ranks may have the same base seed, so the
    function computes all its seeds from ``torch.initial_seed()`` and the rank. On rank 0, the seed of PyTorch's
    generator does not change. If a run is repeated with the same seed, all workers have the same seeds as in the
    earlier run.

    Args:
        worker_id: number of the worker, which PyTorch passes. The function does not use this number.
    """
    rank = current_rank()
    sequence = np.random.SeedSequence([torch.initial_seed(), rank])
    python_words, numpy_words, torch_words = sequence.spawn(3)
    random.seed(int.from_bytes(python_words.generate_state(4).tobytes(), "little"))
    np.random.seed(numpy_words.generate_state(4))
    if rank:
        torch.manual_seed(int(torch_words.generate_state(1, np.uint64)[0]))
