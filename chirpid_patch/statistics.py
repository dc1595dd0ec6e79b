"""Mean and standard deviation for standardising, drawn and reduced as the migrated code did."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.fetch import fetch_batch


def compute_standardization_stats(dataset: Any, indices: Any, sample_size: int = 1000) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of (at most ``sample_size`` of) the samples at ``indices``: 0-dim tensors.

    More than ``sample_size`` indices are thinned with ``np.random.choice`` without replacement, which draws
    from NumPy's global generator. The samples are stacked in that order and reduced in their own dtype, so
    equal inputs give equal results to the last bit (at equal thread counts).
    """
    chosen = indices
    if len(indices) > sample_size:
        chosen = np.random.choice(indices, sample_size, replace=False)
    batch = fetch_batch(dataset, chosen)
    if batch is not None and isinstance(batch[0], Tensor):
        samples = batch[0]
    else:
        samples = torch.stack([dataset[index][0] for index in chosen])
    return samples.mean(), samples.std()
