"""Transforms that augment spectrograms, as single samples or as whole batches in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chirpid_patch.randomness.keyed_random import Keys, draw_random_keys, hash_into_keys, uniform_numbers
from chirpid_patch.transforms import off_cpu
from chirpid_patch.transforms.device_noise import add_device_noise_
from chirpid_patch.transforms.noise import NOISE_MODES, NoiseMode, add_noise_

Places = npt.NDArray[np.int64]


class BatchTransform(nn.Module):
    """A random transform that keeps shape and dtype.

    A 64-bit random key of each sample determines the result. Loaders compute the keys of the samples (see
    ``randomness.keyed_random``). A call with a single sample uses a new random key. This call returns a new tensor, or,
    if the transform skips the sample, the sample itself. Changes of the parameters take effect at the next call.

    Attributes:
        p: probability that the transform changes a sample.
    """

    p: float
    #: The user's object whose code this transform replaces (see ``transforms.declared``); None without such an object.
    declared: Callable[[Any], Any] | None = None

    def may_differ(self, samples: Tensor) -> bool:
        """Return whether results for ``samples`` (B, …) may differ from the results of the user's object ``declared``.

        If True, ``declared`` itself must transform each sample. If ``declared`` is None, the result is False.
        """
        return self.declared is not None and (samples.dtype not in off_cpu.EXACT or samples.requires_grad)

    def applies(self, keys: Keys) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a bool array (B,), which is True for the samples to change.

        Each value is True with probability ``p``.
        """
        gate: np.ndarray[Any, np.dtype[np.bool_]] = uniform_numbers(keys, 1)[:, 0] <= self.p
        return gate

    def check(self, samples: Tensor) -> None:
        """Raise an error if the transform does not support batches with the shape and dtype of ``samples`` (B, …)."""

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        """Transform ``batch[row]`` in place for each row in ``rows``. Each subclass must override this method.

        Args:
            batch: tensor (B, …).
            keys: the 64-bit random key of each row of ``batch``, a uint64 array of shape (B,).
            rows: indices of the rows to transform.
        """
        raise NotImplementedError

    def transform_batch_(self, batch: Tensor, keys: Keys) -> None:
        """Transform ``batch`` (B, …) in place; ``keys`` has the shape (B,).

        ``batch`` must not share memory with other tensors.
        """
        self.check(batch)
        self.transform_rows_(batch, keys, np.flatnonzero(self.applies(keys)).tolist())

    def transform_batch(self, batch: Tensor, keys: Keys) -> Tensor:
        """Return the transformed ``batch`` (B, …); ``keys`` has the shape (B,).

        The method works in place if possible, so ``batch`` must not share memory with other tensors.
        """
        self.transform_batch_(batch, keys)
        return batch

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        """Return the transformed sample as a new tensor; if the transform skips the sample, return ``sample``.

        ``keys`` is the key of the sample, of shape (1,).
        """
        if self.declared is not None and (type(sample) is not Tensor or self.may_differ(sample.unsqueeze(0))):
            own: Tensor = self.declared(sample)
            return own
        if not self.applies(keys)[0]:
            return sample
        batch = sample.clone().unsqueeze(0)
        self.check(batch)
        self.transform_rows_(batch, keys, [0])
        return batch[0]

    def forward(self, sample: Tensor) -> Tensor:
        """Transform a sample, with a new random key from Python's ``random``."""
        return self.transform_sample(sample, draw_random_keys(1))


class SpecAugment(BatchTransform):
    """Mask random ranges of time and frequency in a spectrogram (Park et al. 2019, without time warping).

    Samples have the shape (C, F, T) or (F, T). The width of a mask is a random number from 0 to ``time_mask_param`` or
    ``freq_mask_param``, but at most the length of the axis. The start of a mask is a random position at which the mask
    fits. Width and start have uniform distributions.

    Args:
        time_mask_param: largest width of a time mask, in frames.
        freq_mask_param: largest width of a frequency mask, in frequency bins.
        num_time_masks: number of time masks.
        num_freq_masks: number of frequency masks.
        mask_value: the new value of masked elements.
        p: probability that a sample is masked. All other samples stay unchanged.
        mask_short_axes: whether to mask an axis whose length is at most the largest width of its masks. With False,
            such an axis stays unchanged.
    """

    def __init__(
        self,
        time_mask_param: int = 40,
        freq_mask_param: int = 15,
        num_time_masks: int = 1,
        num_freq_masks: int = 1,
        mask_value: float = 0.0,
        p: float = 0.8,
        mask_short_axes: bool = True,
    ) -> None:
        super().__init__()
        self.time_mask_param = time_mask_param
        self.freq_mask_param = freq_mask_param
        self.num_time_masks = num_time_masks
        self.num_freq_masks = num_freq_masks
        self.mask_value = mask_value
        self.p = p
        self.mask_short_axes = mask_short_axes

    def extra_repr(self) -> str:
        return (
            f"time_mask_param={self.time_mask_param}, freq_mask_param={self.freq_mask_param}, "
            f"num_time_masks={self.num_time_masks}, num_freq_masks={self.num_freq_masks}, "
            f"mask_value={self.mask_value}, p={self.p}, mask_short_axes={self.mask_short_axes}"
        )

    def may_differ(self, samples: Tensor) -> bool:
        """Return whether masks of ``samples`` (B, …) may differ from the masks of the user's object ``declared``.

        The result is also True if a sample does not have the shape (C, F, T) or (F, T), or if the dtype of the samples
        cannot store ``mask_value``. If ``declared`` is None, the result is False.
        """
        if self.declared is None:
            return False
        plain = samples.ndim in (3, 4) and not super().may_differ(samples)
        return not plain or abs(self.mask_value) > torch.finfo(samples.dtype).max

    def check(self, samples: Tensor) -> None:
        if self.may_differ(samples):
            raise ValueError(
                f"SpecAugment may mask samples of {samples.dtype} {tuple(samples.shape[1:])} in another way than the "
                "decorated class: call an object of the decorated class instead"
            )
        if samples.ndim < 3:
            shape = tuple(samples.shape[1:])
            raise ValueError(f"SpecAugment needs samples of shape (C, F, T) or (F, T), not {shape}")
        for name in ("time_mask_param", "freq_mask_param"):
            if getattr(self, name) < 0:
                raise ValueError(f"SpecAugment needs {name} >= 0, not {getattr(self, name)}")

    def mask_places(self, keys: Keys, n_freq: int, n_time: int) -> tuple[Places, Places]:
        """Return starts and stops of the masks for samples of shape (…, ``n_freq``, ``n_time``).

        Starts and stops are int64 arrays (B, number of masks), with the masks of the time axis first. ``keys`` has the
        shape (B,).
        """
        axes = [(n_time, self.time_mask_param)] * max(self.num_time_masks, 0)
        axes += [(n_freq, self.freq_mask_param)] * max(self.num_freq_masks, 0)
        sizes = np.array([size for size, _ in axes], dtype=np.int64)
        widest = np.array([self._widest(size, param) for size, param in axes], dtype=np.int64)
        # The first random number decides whether to mask. The other numbers are a width and a start for each mask.
        draws = uniform_numbers(keys, 1 + 2 * len(axes))[:, 1:].reshape(len(keys), len(axes), 2)
        widths = (draws[..., 0] * (widest + 1)).astype(np.int64)
        starts = (draws[..., 1] * (sizes - widths + 1)).astype(np.int64)
        return starts, starts + widths

    def _widest(self, size: int, param: int) -> int:
        return min(param, size) if self.mask_short_axes or param < size else 0

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        if not rows:
            return
        starts, stops = self.mask_places(keys[rows], *batch.shape[-2:])
        if off_cpu.is_off_cpu(batch):
            self._mask_at_once_(batch, rows, starts, stops)
            return
        writable = writable_view(batch)  # slicing a NumPy array is five times as fast as slicing a tensor
        for row, row_starts, row_stops in zip(rows, starts.tolist(), stops.tolist(), strict=True):
            sample = writable[row]
            for mask, (start, stop) in enumerate(zip(row_starts, row_stops, strict=True)):
                if mask < self.num_time_masks:
                    sample[..., start:stop] = self.mask_value
                else:
                    sample[..., start:stop, :] = self.mask_value

    def _mask_at_once_(self, batch: Tensor, rows: Sequence[int], starts: Places, stops: Places) -> None:
        """Mask all rows with few kernels, which is faster on an accelerator than masking row by row."""
        n_freq, n_time = batch.shape[-2:]
        if not starts.size:
            return
        # The time axis and the frequency axis are joined to a single axis, with the frequencies after the times.
        places = np.zeros((2, len(batch), starts.shape[1], 1), dtype=np.int64)
        places[0, rows, :, 0], places[1, rows, :, 0] = starts, stops
        places[:, :, max(self.num_time_masks, 0) :] += n_time
        first, end = off_cpu.send_to_device(torch.from_numpy(places), batch.device)
        along = torch.arange(n_time + n_freq, device=batch.device)
        times, frequencies = ((along >= first) & (along < end)).any(1).split([n_time, n_freq], 1)
        mask = times.unsqueeze(1) | frequencies.unsqueeze(2)
        between = [1] * (batch.ndim - 3)
        value = writable_view(torch.empty(1, dtype=batch.dtype))
        value[...] = self.mask_value  # this assignment rounds the value as on the CPU
        batch.masked_fill_(mask.view(len(batch), *between, n_freq, n_time), value[0].item())


def writable_view(batch: Tensor) -> Any:
    """Return a NumPy array over the memory of ``batch``.

    If NumPy does not support the dtype or device, or ``batch`` requires a gradient, return ``batch``.
    """
    try:
        return batch if batch.requires_grad else batch.numpy()
    except TypeError:  # bfloat16, or another device
        return batch


class GaussianNoise(BatchTransform):
    """Add normal noise N(0, std²) to samples of any shape, and clamp the samples to [0, 1].

    Args:
        std: standard deviation of the noise.
        p: probability that a sample gets noise. All other samples stay unchanged.
        mode: how the noise is computed (see ``chirpid_patch.transforms.noise``). ``"table"`` is fast, and its values
            are independent. ``"exact"`` takes independent values from ``torch.Tensor.normal_``. ``"pooled"`` is the
            fastest mode, but the noise of different samples is not independent.
    """

    def __init__(self, std: float = 0.02, p: float = 0.8, mode: NoiseMode = "table") -> None:
        super().__init__()
        self.std = std
        self.p = p
        self.mode = mode
        self._check_mode()

    def _check_mode(self) -> None:
        if self.mode not in NOISE_MODES:
            raise ValueError(f"GaussianNoise has no mode {self.mode!r}; the modes are {', '.join(NOISE_MODES)}")

    def extra_repr(self) -> str:
        return f"std={self.std}, p={self.p}, mode={self.mode!r}"

    def check(self, samples: Tensor) -> None:
        if self.may_differ(samples):
            raise ValueError(
                f"GaussianNoise may add other noise to samples of {samples.dtype} than the decorated class: "
                "call an object of the decorated class instead"
            )
        if not samples.is_floating_point():
            raise TypeError(f"GaussianNoise needs floating-point samples, not {samples.dtype}")
        self._check_mode()

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        if off_cpu.is_off_cpu(batch):
            add_device_noise_(batch, rows, hash_into_keys(keys[rows], 1), self.std, self.mode)
            return
        add_noise_(batch, rows, hash_into_keys(keys[rows], 1), self.std, self.mode)


class Standardize(BatchTransform):
    """Compute ``(x - mean) / (std + eps)``, or ``(x - mean) / std`` if ``eps`` is None.

    Standardising a batch has the same results, to the last bit, as standardising each sample.

    Args:
        mean: number, or tensor that broadcasts with a sample.
        std: number, or tensor that broadcasts with a sample.
        eps: number that is added to ``std``; None: nothing is added.
    """

    p = 1.0

    def __init__(self, mean: Any, std: Any, eps: float | None = 1e-8) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.eps = eps

    def extra_repr(self) -> str:
        return f"mean={self.mean}, std={self.std}, eps={self.eps}"

    def _divisor(self) -> Any:
        return self.std if self.eps is None else self.std + self.eps

    def forward(self, sample: Any) -> Any:
        """Standardise a sample of any type that supports ``-`` and ``/``."""
        return (sample - self.mean) / self._divisor()

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        standardized: Tensor = self(sample)
        return standardized

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        for row in rows:
            batch[row] = self(batch[row])

    def transform_batch(self, batch: Tensor, keys: Keys) -> Tensor:
        mean, divisor = off_cpu.as_exact_operand(self.mean, batch), off_cpu.as_exact_operand(self._divisor(), batch)
        if _keeps_form(mean, batch) and _keeps_form(divisor, batch):
            return batch.sub_(mean).div_(divisor)
        return torch.stack([(sample - mean) / divisor for sample in batch])


def _keeps_form(value: Any, batch: Tensor) -> bool:
    """Return whether arithmetic with ``value`` keeps dtype and shape of the samples in ``batch`` (B, …)."""
    if not batch.is_floating_point() or batch.requires_grad:
        return False
    if not isinstance(value, Tensor):
        return isinstance(value, int | float)
    if value.requires_grad or value.device != batch.device or value.is_complex():
        return False
    if value.ndim == 0:
        return True
    sizes = zip(reversed(value.shape), reversed(batch.shape[1:]), strict=False)
    return value.dtype == batch.dtype and value.ndim < batch.ndim and all(a in (1, b) for a, b in sizes)


Transform = Callable[[Tensor], Tensor]

_SHIPPED_FORWARDS = (BatchTransform.forward, Standardize.forward)
_SHIPPED_CALL = nn.Module.__call__


def is_batchable(transform: Transform) -> bool:
    """Return whether ``transform`` supports whole batches.

    The result is True for a transform of this package, unless a subclass or a hook changes its ``forward``.
    """
    return (
        isinstance(transform, BatchTransform)
        and type(transform).forward in _SHIPPED_FORWARDS
        and type(transform).__call__ is _SHIPPED_CALL
        and "forward" not in vars(transform)
        and not transform._forward_hooks
        and not transform._forward_pre_hooks
    )


def works_in_place(transform: Transform) -> bool:
    """Return whether ``transform`` always changes a batch in place, so that dtype and shape stay the same."""
    return isinstance(transform, BatchTransform) and type(transform).transform_batch is BatchTransform.transform_batch
