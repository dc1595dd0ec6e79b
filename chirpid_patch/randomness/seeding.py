"""Seeds for worker processes."""

from __future__ import annotations

import random

import numpy as np
import torch

from chirpid_patch.machine.ranks import current_rank


def worker_init_fn(worker_id: int) -> None:
    """Seed ``random``, NumPy and torch in a DataLoader worker.

    ``torch.initial_seed()`` in a worker is the loader's base seed plus the worker's number already, and the
    base seed is new each epoch, so ``worker_id`` is not added again. The rank is mixed in, because ranks
    seeded alike have equal base seeds. With rank 0 torch keeps the seed PyTorch gave it. Repeats exactly
    with the run's seed.
    """
    rank = current_rank()
    sequence = np.random.SeedSequence([torch.initial_seed(), rank])
    python_words, numpy_words, torch_words = sequence.spawn(3)
    random.seed(int.from_bytes(python_words.generate_state(4).tobytes(), "little"))
    np.random.seed(numpy_words.generate_state(4))
    if rank:
        torch.manual_seed(int(torch_words.generate_state(1, np.uint64)[0]))
