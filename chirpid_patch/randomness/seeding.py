"""Seeds for worker processes."""

from __future__ import annotations

import random

import numpy as np
import torch

from chirpid_patch.machine.ranks import current_rank


def worker_init_fn(worker_id: int) -> None:
    """Seed ``random``, NumPy and torch in a worker process of a DataLoader.

    In a worker, ``torch.initial_seed()`` is already the loader's base seed plus the worker's number, and the base seed
    is new in each epoch. So the function does not add ``worker_id``. It adds the rank, because ranks with equal seeds
    have equal base seeds. With rank 0, torch keeps PyTorch's seed. All seeds repeat with the run's seed.

    Args:
        worker_id: number of the worker, from PyTorch.
    """
    rank = current_rank()
    sequence = np.random.SeedSequence([torch.initial_seed(), rank])
    python_words, numpy_words, torch_words = sequence.spawn(3)
    random.seed(int.from_bytes(python_words.generate_state(4).tobytes(), "little"))
    np.random.seed(numpy_words.generate_state(4))
    if rank:
        torch.manual_seed(int(torch_words.generate_state(1, np.uint64)[0]))
