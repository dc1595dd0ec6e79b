"""The shipped transforms of a whole batch on a device, in few kernels: the same draws as on the CPU.

What is random about a sample is drawn from its key on the CPU, a few numbers, and sent to the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.device.resident_noise import device_noise
from chirpid_patch.device.resident_tensors import ResidentTensors
from chirpid_patch.device.same_code import runs_code_of
from chirpid_patch.randomness.keyed_random import Keys, derive
from chirpid_patch.transforms.noise import add_noise_
from chirpid_patch.transforms.symmetries import FlipsAndTurns
from chirpid_patch.transforms.transforms import (
    BatchTransform,
    GaussianNoise,
    SpecAugment,
    Standardize,
    is_batchable,
    writable_view,
)

#: Values that get noise at a time: what is computed on the way takes about 20 bytes for each.
_NOISE_AT_A_TIME = 1 << 23

DeviceTransform = Callable[[Any, Tensor, Keys, ResidentTensors], Tensor | None]


def on_device(transform: Any) -> DeviceTransform | None:
    """What applies ``transform`` to a batch on a device; None where only its own code can.

    It is called with the transform, the batch (B, …), which it may write to, the keys (B,), and what is resident. It
    gives the batch transformed, or None where something that is needed cannot be held on the device.
    """
    if not is_batchable(transform):
        return None
    return next((apply for kind, apply in _APPLY.items() if runs_code_of(type(transform), kind)), None)


def standardized(batch: Tensor, mean: Any, std: Any, eps: float | None, resident: ResidentTensors) -> Tensor | None:
    """``(batch - mean) / (std + eps)`` as for each sample of the batch (B, …); None as ``on_device`` says."""
    mean, divisor = resident.operand(mean, batch), _divisor(std, eps, batch, resident)
    if mean is None or divisor is None:
        return None
    # A 0-dim sample promotes dtypes otherwise than a 1-dim batch, and more axes would meet that of the batch.
    if batch.ndim > 1 and max(np.ndim(mean), np.ndim(divisor)) < batch.ndim:
        result: Tensor = (batch - mean) / divisor
        return result
    return torch.stack([(sample - mean) / divisor for sample in batch])


def _divisor(std: Any, eps: float | None, batch: Tensor, resident: ResidentTensors) -> Any:
    if isinstance(std, Tensor) and std.ndim:
        there = resident.get(std)
        return there if there is None or eps is None else there + eps
    return resident.operand(std if eps is None else std + eps, batch)


def _standardize(transform: Standardize, batch: Tensor, keys: Keys, resident: ResidentTensors) -> Tensor | None:
    return standardized(batch, transform.mean, transform.std, transform.eps, resident)


def _mask(transform: SpecAugment, batch: Tensor, keys: Keys, resident: ResidentTensors) -> Tensor | None:
    if transform.may_differ(batch):
        return None
    transform.check(batch)
    n_freq, n_time = batch.shape[-2:]
    rows = np.flatnonzero(transform.applies(keys))
    starts, stops = transform.mask_places(keys[rows], n_freq, n_time)
    if not starts.size:
        return batch
    # Both axes as one: the frequencies behind the times. What is not masked has a mask that is empty.
    starts[:, max(transform.num_time_masks, 0) :] += n_time
    stops[:, max(transform.num_time_masks, 0) :] += n_time
    places = np.zeros((2, len(batch), starts.shape[1], 1), dtype=np.int64)
    places[0, rows, :, 0], places[1, rows, :, 0] = starts, stops
    first, behind = resident.send(places)
    along = torch.arange(n_time + n_freq, device=batch.device)
    masked = ((along >= first) & (along < behind)).any(1)
    times, frequencies = masked.split([n_time, n_freq], 1)
    mask = (times.unsqueeze(1) | frequencies.unsqueeze(2)).view(len(batch), *[1] * (batch.ndim - 3), n_freq, n_time)
    return batch.masked_fill_(mask, _as_stored(transform.mask_value, batch.dtype))


def _as_stored(value: Any, dtype: torch.dtype) -> Any:
    """``value`` as assigning it to a sample on the CPU would round it."""
    one = writable_view(torch.empty(1, dtype=dtype, device="cpu"))
    one[...] = value
    return one[0].item()


def _add_noise(transform: GaussianNoise, batch: Tensor, keys: Keys, resident: ResidentTensors) -> Tensor | None:
    if transform.may_differ(batch):
        return None
    transform.check(batch)
    rows = np.flatnonzero(transform.applies(keys))
    row_keys = derive(keys[rows], 1)
    count = math.prod(batch.shape[1:])
    if not len(rows) or not count:
        return batch
    if transform.mode == "exact" and batch.device.type == "cpu":
        add_noise_(batch, rows.tolist(), row_keys, transform.std, transform.mode)
        return batch
    at_a_time = max(1, _NOISE_AT_A_TIME // count)
    for first in range(0, len(rows), at_a_time):
        some = slice(first, first + at_a_time)
        numbers = resident.send(np.stack([rows[some].astype(np.int64), row_keys[some].view(np.int64)]))
        noise = device_noise(numbers[1], count, transform.std, transform.mode)
        noisy = batch.index_select(0, numbers[0])
        noisy.add_(noise.view(noisy.shape)).clamp_(0, 1)
        batch.index_copy_(0, numbers[0], noisy)
    return batch


def _turn(transform: FlipsAndTurns, batch: Tensor, keys: Keys, resident: ResidentTensors) -> Tensor:
    transform.transform_batch_(batch, keys)
    return batch


_APPLY: dict[type[BatchTransform], DeviceTransform] = {
    SpecAugment: _mask,
    GaussianNoise: _add_noise,
    Standardize: _standardize,
    FlipsAndTurns: _turn,
}
