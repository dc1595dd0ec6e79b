"""Functions that compute the mean and standard deviation with which samples are standardised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.datasets.gather import fetch_batch


def compute_standardization_stats(dataset: Any, indices: Any, sample_size: int = 1000) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation over the x of at most ``sample_size`` samples at ``indices``.

    The result is the same to the last bit if the samples, the arguments, the number of threads and the state of NumPy's
    global generator are the same.

    Args:
        dataset: map-style dataset of samples (x, y), where x is a tensor.
        indices: indices of the samples.
        sample_size: largest number of samples to use. If there are more indices, ``np.random.choice`` chooses
            ``sample_size`` indices without replacement.

    Returns:
        Mean and standard deviation over all values of the stacked x, as two 0-dim tensors of the dtype of x.
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


def streaming_standardization_stats(
    dataset: Any, indices: Iterable[Any] | None = None, *, batch_size: int = 256
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation over all x of the samples at ``indices``, computed batch by batch.

    The function reads every sample once, in order, and keeps one batch in memory at a time. The function computes
    count, mean and sum of squared deviations of each batch, and merges these values (Chan, Golub & LeVeque 1983,
    "Algorithms for computing the sample variance"). This method stays accurate even if the mean is much larger than the
    deviation. The standard deviation is unbiased, like the result of ``torch.std``.

    Args:
        dataset: map-style dataset of samples (x, …). Each x is a tensor, array or number of a real dtype and any shape.
        indices: indices of the samples; None: all samples, ``range(len(dataset))``.
        batch_size: number of samples that are read at a time. This number affects memory use, speed and rounding.

    Returns:
        Mean and standard deviation, as two 0-dim float64 tensors.

    Raises:
        ValueError: ``batch_size`` is below 1, or all x together contain fewer than two values.
        TypeError: an x is complex.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    remaining = iter(range(len(dataset)) if indices is None else indices)
    count, mean, squares = 0, 0.0, 0.0
    pivot: float | None = None
    memory = torch.empty(0, dtype=torch.float64)
    while chunk := list(islice(remaining, batch_size)):
        for x in _values(dataset, chunk):
            size = x.numel()
            if size == 0:
                continue
            if size > memory.numel():
                memory = torch.empty(size, dtype=torch.float64)
            values = memory[:size].copy_(x.detach().reshape(-1))
            if pivot is None:
                # Subtracting a value near the mean keeps all digits, even if the mean is large.
                first = values.mean().item()
                pivot = first if math.isfinite(first) else 0.0
            center = values.sub_(pivot).mean().item()
            values.sub_(center)
            shift, total = center - mean, count + size
            mean += shift * (size / total)
            squares += torch.dot(values, values).item() + shift * shift * (count * (size / total))
            count = total
    if count < 2:
        found = "are no samples" if count == 0 else "is a single value"
        raise ValueError(f"mean and standard deviation need at least two values, but there {found}")
    std = math.sqrt(squares / (count - 1))
    return torch.tensor((pivot or 0.0) + mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)


def _values(dataset: Any, chunk: Sequence[Any]) -> Iterator[Tensor]:
    """Yield one tensor with the x of all samples in ``chunk`` if possible, else a tensor for each x."""
    batch = fetch_batch(dataset, chunk)
    if batch is not None and isinstance(batch[0], Tensor):
        yield _real(batch[0])
    else:
        for index in chunk:
            yield _real(torch.as_tensor(dataset[index][0]))


def _real(x: Tensor) -> Tensor:
    if x.is_complex():
        raise TypeError("x is complex: complex samples cannot be standardised")
    return x
