"""Spectrogram augmentation: one sample at a time, or a whole batch in place, with the same distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chirpid_patch.randomness.keyed_random import Keys, fold_in, fresh_keys, uniforms
from chirpid_patch.transforms import off_cpu
from chirpid_patch.transforms.device_noise import add_device_noise_
from chirpid_patch.transforms.noise import NOISE_MODES, NoiseMode, add_noise_

Places = npt.NDArray[np.int64]


class BatchTransform(nn.Module):
    """A random transform that keeps shape and dtype; a 64-bit key fixes the result of each sample.

    A call with one sample returns a new tensor, or the sample itself if the transform skips it. Changes of the
    parameters take effect at the next call.
    """

    p: float
    #: The declared object that this transform replaces, if any: see ``may_differ``.
    declared: Callable[[Any], Any] | None = None

    def may_differ(self, samples: Tensor) -> bool:
        """Return whether ``declared`` may treat samples of a batch (B, …) differently, so that its own code runs."""
        return self.declared is not None and (samples.dtype not in off_cpu.EXACT or samples.requires_grad)

    def applies(self, keys: Keys) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which samples are transformed, bool of shape (B,): those with a uniform random number up to ``p``."""
        gate: np.ndarray[Any, np.dtype[np.bool_]] = uniforms(keys, 1)[:, 0] <= self.p
        return gate

    def check(self, samples: Tensor) -> None:
        """Raise an error if a batch (B, …) of such samples cannot be transformed."""

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        """Transform the given rows of ``batch`` (B, …) in place; each transform implements this."""
        raise NotImplementedError

    def transform_batch_(self, batch: Tensor, keys: Keys) -> None:
        """Transform ``batch`` (B, …), which must be the caller's own memory, in place; ``keys`` is (B,)."""
        self.check(batch)
        self.transform_rows_(batch, keys, np.flatnonzero(self.applies(keys)).tolist())

    def transform_batch(self, batch: Tensor, keys: Keys) -> Tensor:
        """Transform ``batch`` (B, …), in place if possible, and return it; it must be the caller's own memory."""
        self.transform_batch_(batch, keys)
        return batch

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        """Return one sample, transformed with its key (1,): a new tensor, or ``sample`` itself if it is skipped."""
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
        """Transform one sample with a key from Python's ``random``."""
        return self.transform_sample(sample, fresh_keys(1))


class SpecAugment(BatchTransform):
    """Mask random ranges of time and frequency (Park et al. 2019, without warping).

    Samples are (C, F, T) or (F, T). The widths of masks are uniform in ``0..param``, at most the length of the axis,
    and their starts are uniform over all places where the mask fits.

    Args:
        time_mask_param: largest width of a time mask, in frames.
        freq_mask_param: largest width of a frequency mask, in bins.
        num_time_masks: number of time masks.
        num_freq_masks: number of frequency masks.
        mask_value: value of masked elements.
        p: probability of masking a sample; otherwise it stays unchanged.
        mask_short_axes: False skips an axis that is not longer than its parameter.
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
        """Also return True for samples that are not (C, F, T) or (F, T), or whose dtype cannot store ``mask_value``."""
        if self.declared is None:
            return False
        plain = samples.ndim in (3, 4) and not super().may_differ(samples)
        return not plain or abs(self.mask_value) > torch.finfo(samples.dtype).max

    def check(self, samples: Tensor) -> None:
        if self.may_differ(samples):
            raise ValueError(f"masks of {samples.dtype} {tuple(samples.shape[1:])} need the code of the declared class")
        if samples.ndim < 3:
            shape = tuple(samples.shape[1:])
            raise ValueError(f"SpecAugment needs samples of shape (C, F, T) or (F, T), not {shape}")
        for name in ("time_mask_param", "freq_mask_param"):
            if getattr(self, name) < 0:
                raise ValueError(f"SpecAugment needs {name} >= 0, not {getattr(self, name)}")

    def mask_places(self, keys: Keys, n_freq: int, n_time: int) -> tuple[Places, Places]:
        """Return where samples (…, ``n_freq``, ``n_time``) are masked: starts and stops, int64 of shape (B, masks).

        ``keys`` is (B,). The ``num_time_masks`` masks of the time axis come first, then those of the frequency axis.
        """
        axes = [(n_time, self.time_mask_param)] * max(self.num_time_masks, 0)
        axes += [(n_freq, self.freq_mask_param)] * max(self.num_freq_masks, 0)
        sizes = np.array([size for size, _ in axes], dtype=np.int64)
        widest = np.array([self._widest(size, param) for size, param in axes], dtype=np.int64)
        # Draw 0 is the gate; then a width and a start for every mask.
        draws = uniforms(keys, 1 + 2 * len(axes))[:, 1:].reshape(len(keys), len(axes), 2)
        widths = (draws[..., 0] * (widest + 1)).astype(np.int64)
        starts = (draws[..., 1] * (sizes - widths + 1)).astype(np.int64)
        return starts, starts + widths

    def _widest(self, size: int, param: int) -> int:
        return min(param, size) if self.mask_short_axes or param < size else 0

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        if not rows:
            return
        starts, stops = self.mask_places(keys[rows], *batch.shape[-2:])
        if off_cpu.is_away(batch):
            self._mask_at_once_(batch, rows, starts, stops)
            return
        writable = writable_view(batch)  # a NumPy slice costs a fifth of a tensor's
        for row, row_starts, row_stops in zip(rows, starts.tolist(), stops.tolist(), strict=True):
            sample = writable[row]
            for mask, (start, stop) in enumerate(zip(row_starts, row_stops, strict=True)):
                if mask < self.num_time_masks:
                    sample[..., start:stop] = self.mask_value
                else:
                    sample[..., start:stop, :] = self.mask_value

    def _mask_at_once_(self, batch: Tensor, rows: Sequence[int], starts: Places, stops: Places) -> None:
        """Mask the rows in few kernels, which is faster on an accelerator."""
        n_freq, n_time = batch.shape[-2:]
        if not starts.size:
            return
        # Both axes as one: the frequencies after the times. An axis without masks has an empty mask.
        places = np.zeros((2, len(batch), starts.shape[1], 1), dtype=np.int64)
        places[0, rows, :, 0], places[1, rows, :, 0] = starts, stops
        places[:, :, max(self.num_time_masks, 0) :] += n_time
        first, end = off_cpu.send(torch.from_numpy(places), batch.device)
        along = torch.arange(n_time + n_freq, device=batch.device)
        times, frequencies = ((along >= first) & (along < end)).any(1).split([n_time, n_freq], 1)
        mask = times.unsqueeze(1) | frequencies.unsqueeze(2)
        between = [1] * (batch.ndim - 3)
        value = writable_view(torch.empty(1, dtype=batch.dtype))
        value[...] = self.mask_value  # as assigning it to a sample on the CPU would round it
        batch.masked_fill_(mask.view(len(batch), *between, n_freq, n_time), value[0].item())


def writable_view(batch: Tensor) -> Any:
    """Return the memory of ``batch`` as an array.

    The result is the tensor itself if NumPy cannot use it, or gradients are recorded.
    """
    try:
        return batch if batch.requires_grad else batch.numpy()
    except TypeError:  # bfloat16, or another device
        return batch


class GaussianNoise(BatchTransform):
    """Add N(0, std²) noise with probability ``p`` and clamp to [0, 1]; samples of any shape.

    Args:
        std: standard deviation of the noise.
        p: probability of adding noise to a sample.
        mode: ``"table"`` (independent, fast), ``"exact"`` (independent, from PyTorch's normal generator) or
            ``"pooled"`` (fastest; parts of one noise pool, so samples are not independent), see
            ``chirpid_patch.transforms.noise``.
    """

    def __init__(self, std: float = 0.02, p: float = 0.8, mode: NoiseMode = "table") -> None:
        super().__init__()
        self.std = std
        self.p = p
        self.mode = mode
        self._check_mode()

    def _check_mode(self) -> None:
        if self.mode not in NOISE_MODES:
            raise ValueError(f"GaussianNoise has the modes {', '.join(NOISE_MODES)}, not {self.mode!r}")

    def extra_repr(self) -> str:
        return f"std={self.std}, p={self.p}, mode={self.mode!r}"

    def check(self, samples: Tensor) -> None:
        if self.may_differ(samples):
            raise ValueError(f"noise in {samples.dtype} needs the code of the declared class")
        if not samples.is_floating_point():
            raise TypeError(f"GaussianNoise needs floating-point samples, not {samples.dtype}")
        self._check_mode()

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        if off_cpu.is_away(batch):
            add_device_noise_(batch, rows, fold_in(keys[rows], 1), self.std, self.mode)
            return
        add_noise_(batch, rows, fold_in(keys[rows], 1), self.std, self.mode)


class Standardize(BatchTransform):
    """Compute ``(x - mean) / (std + eps)``, or ``(x - mean) / std`` with ``eps`` None.

    A batch is equal to its standardised samples, to the last bit.

    Args:
        mean: number, or tensor that broadcasts with a sample.
        std: number, or tensor that broadcasts with a sample.
        eps: number that is added to ``std``; None adds nothing.
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
        """Standardise one sample of any type that the operators accept."""
        return (sample - self.mean) / self._divisor()

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        standardized: Tensor = self(sample)
        return standardized

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        for row in rows:
            batch[row] = self(batch[row])

    def transform_batch(self, batch: Tensor, keys: Keys) -> Tensor:
        mean, divisor = off_cpu.as_operand(self.mean, batch), off_cpu.as_operand(self._divisor(), batch)
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
    """Return whether ``transform`` applies to whole batches: one of this package, without overridden methods."""
    return (
        isinstance(transform, BatchTransform)
        and type(transform).forward in _SHIPPED_FORWARDS
        and type(transform).__call__ is _SHIPPED_CALL
        and "forward" not in vars(transform)
        and not transform._forward_hooks
        and not transform._forward_pre_hooks
    )


def works_in_place(transform: Transform) -> bool:
    """Return whether ``transform`` changes a batch in place, with the same dtype and shape."""
    return isinstance(transform, BatchTransform) and type(transform).transform_batch is BatchTransform.transform_batch
