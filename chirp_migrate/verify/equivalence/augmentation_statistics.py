"""Compute statistics of augmented samples, and find pairs of samples that were augmented with the same random numbers.

A batch has the shape (B, ..., F, T), with B samples, F frequency bins and T time frames.

Statistical tests compare these statistics before and after the migration. The statistics :data:`STATISTICS` need only
the augmented sample. The statistics :data:`PAIRED` compare an augmented sample with the same sample without
augmentation. This comparison also shows the added noise. If noise or clamping hides a mask in the augmented sample, the
comparison shows the mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

STATISTICS = (
    "mean",
    "standard deviation",
    "share of zeros",
    "share of constant time frames",
    "share of constant frequency bins",
    "mean difference of neighbouring time frames",
)
"""Statistics of one augmented sample.

The values show changes in the probability of augmentation, in the widths of masks, in noise and in clamping.
"""

PAIRED = (
    "share of values that augmentation changes",
    "number of masked time frames",
    "index of the first masked time frame",
    "number of masked frequency bins",
    "index of the first masked frequency bin",
    "10 % quantile of the absolute changes",
)
"""Statistics of the difference between an augmented sample and the same sample without augmentation."""

RELATIONS = {
    "batches": "augmented samples at the same position in consecutive batches",
    "neighbours": "augmented samples next to each other in a batch",
    "epochs": "augmented samples at the same position in consecutive epochs",
    "indices": "augmented samples of the same index in consecutive epochs",
}
"""Relations between two augmented samples. Two samples with such a relation must not share random numbers."""

_FLAT = 0.25
"""A time frame or bin counts as masked if augmentation reduces its standard deviation to less than this share.

The share is not 0, because augmentation may add noise to a masked time frame.
"""
_SPREAD_OVER = 48
_POINTS = 2048
_SMALL = 0.1
_NOISY = 0.5
_EQUAL_CHANGES = 0.05


def sample_statistics(batch: torch.Tensor) -> list[list[float]]:
    """Return the values of the statistics :data:`STATISTICS`: one row for each sample of a batch (B, ..., F, T)."""
    x = _as_images(batch)
    pixels = (1, 2, 3)
    constant_frames = (x.amax(dim=2) == x.amin(dim=2)).float().mean(dim=(1, 2))
    constant_bins = (x.amax(dim=3) == x.amin(dim=3)).float().mean(dim=(1, 2))
    steps = (x[..., 1:] - x[..., :-1]).abs().flatten(1).sum(dim=1) / max(x[0, ..., 1:].numel(), 1)
    columns = (
        x.mean(dim=pixels),
        _variance(x.flatten(1), 1).sqrt(),
        (x == 0).float().mean(dim=pixels),
        constant_frames,
        constant_bins,
        steps,
    )
    rows: list[list[float]] = torch.stack(columns, dim=1).tolist()
    return rows


@dataclass(frozen=True)
class VisibleAugmentation:
    """The visible effects of augmentation on one sample: masks and noise.

    Attributes:
        masked: one bit for each time frame, followed by one bit for each frequency bin. A bit is 1 if augmentation
            masked its frame or bin. Without masks, the value is ``b""``.
        changes: float32 array of at most 4,095 values. Each value is the difference between the augmented sample and
            the same sample without augmentation, at one position of the sample. To save time, the array contains only
            evenly spaced positions of a sample that has more values. The array is None if the sample without
            augmentation cannot be read.
        noisy: whether augmentation changed more than half of the values of the sample.
        small: size of a small change, which is the 10 % quantile of the absolute values of all changes that are not 0.
            The comparison with another sample ignores differences that are far smaller than this size.
    """

    masked: bytes = b""
    changes: NDArray[np.float32] | None = None
    noisy: bool = False
    small: float = 0.0

    @property
    def is_comparable(self) -> bool:
        """Return whether the sample has masks or noise, because only these effects can be compared between samples."""
        return bool(self.masked) or self.noisy

    def equals(self, other: VisibleAugmentation) -> bool:
        """Return whether both samples were probably augmented with the same random numbers."""
        if self.masked != other.masked or self.noisy != other.noisy:
            return False
        if not self.noisy or self.changes is None or other.changes is None:
            return True
        known = (self.changes != 0) & (other.changes != 0)
        near = np.abs(self.changes - other.changes) <= 1e-3 * max(self.small, other.small)
        return bool((known & near).sum() > _EQUAL_CHANGES * len(known))


@dataclass
class LoadedSample:
    """A sample in a batch that a loader yielded.

    Attributes:
        content: hash of the sample's values in the batch.
        index: index of the sample in the dataset; None if the index is not known.
        plain: hash of the same sample without augmentation; None if this hash is not known.
        draw: masks and noise that augmentation added to the sample.
    """

    content: bytes
    index: int | None = None
    plain: bytes | None = None
    draw: VisibleAugmentation = VisibleAugmentation()

    @property
    def augmented(self) -> bytes:
        """Return the hash of the augmented sample; ``b""`` if augmentation did not change the sample."""
        return b"" if self.content == self.plain else self.content


def compare_with_unaugmented(
    batch: torch.Tensor, unaugmented: torch.Tensor
) -> tuple[list[list[float]], list[VisibleAugmentation]]:
    """Compare a batch with the same batch without augmentation. Both batches have the shape (B, ..., F, T).

    Returns:
        Two lists with one element for each sample: the values of the statistics :data:`PAIRED`, and the visible
        augmentation (masks and noise).
    """
    x, before = _as_images(batch), _as_images(unaugmented)
    changed = (x != before).flatten(1).sum(dim=1) / x[0].numel()
    frames, bins = (_find_constant_lines(x, before, axis) for axis in (2, 3))
    step = max(1, x[0].numel() // _POINTS)
    points = x.flatten(1)[:, ::step] - before.flatten(1)[:, ::step]
    sizes = points.abs().masked_fill(points == 0, math.inf).sort(dim=1).values
    counts = (points != 0).sum(dim=1)
    small = sizes.gather(1, (counts * _SMALL).long().clamp(max=sizes.shape[1] - 1).unsqueeze(1)).squeeze(1)
    small = small.masked_fill(counts == 0, 0.0)
    columns = (
        changed,
        frames.sum(dim=1).float(),
        _first_true(frames),
        bins.sum(dim=1).float(),
        _first_true(bins),
        small,
    )
    rows: list[list[float]] = torch.stack(columns, dim=1).tolist()
    draws = [
        VisibleAugmentation(_pack_bits(*masks), change, row[0] > _NOISY, row[-1])
        for masks, change, row in zip(zip(frames, bins, strict=True), points.numpy(), rows, strict=True)
    ]
    return rows, draws


def find_masks(batch: torch.Tensor) -> list[VisibleAugmentation]:
    """Find the masks of each sample in a batch: the time frames and frequency bins whose values are all equal.

    This function is for samples that cannot be read without augmentation.
    """
    x = _as_images(batch)
    frames, bins = ((x.amax(dim=axis) == x.amin(dim=axis)).all(dim=1) for axis in (2, 3))
    return [VisibleAugmentation(_pack_bits(*masks)) for masks in zip(frames, bins, strict=True)]


def count_equally_augmented_pairs(
    batches: Sequence[Sequence[LoadedSample]], previous_batches: Sequence[Sequence[LoadedSample]] | None
) -> dict[str, tuple[int, int]]:
    """Count pairs of augmented samples, and the pairs whose samples were augmented with the same random numbers.

    The function counts separately for each relation between the two samples, such as "next to each other in a batch".

    Args:
        batches: the augmented samples of one iteration over a loader, one list for each batch.
        previous_batches: the augmented samples of the previous iteration over the dataset; None if no iteration came
            before.

    Returns:
        A dictionary: key of :data:`RELATIONS` → two numbers. The first number counts the pairs that can be compared.
        The second number counts the pairs among them whose samples were augmented with the same random numbers.
    """
    found = {
        "batches": _count_equal_pairs(_pairs_at_same_position(batches[:-1], batches[1:])),
        "neighbours": _count_equal_pairs(pair for batch in batches for pair in pairwise(batch)),
    }
    if previous_batches is not None:
        found["epochs"] = _count_equal_pairs(_pairs_at_same_position(previous_batches, batches))
        earlier = dict(_augmented_hashes_by_index(previous_batches))
        contents = [
            (earlier[index], content) for index, content in _augmented_hashes_by_index(batches) if index in earlier
        ]
        comparable = [(first, second) for first, second in contents if first or second]
        found["indices"] = (len(comparable), sum(first == second for first, second in comparable))
    return found


def fisher_p_value(count_before: int, total_before: int, count_after: int, total_after: int) -> float:
    """Return the p-value of Fisher's exact test of whether a share has increased.

    The shares are ``count_before / total_before`` before and ``count_after / total_after`` after the migration. If one
    of the totals is 0, the result is 1.0.
    """
    if not total_before or not total_after:
        return 1.0
    from scipy.stats import fisher_exact

    table = [[count_after, total_after - count_after], [count_before, total_before - count_before]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def _augmented_hashes_by_index(batches: Sequence[Sequence[LoadedSample]]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from ((sample.index, sample.augmented) for sample in batch if sample.index is not None)


def _pairs_at_same_position(
    first: Sequence[Sequence[LoadedSample]], second: Sequence[Sequence[LoadedSample]]
) -> Iterator[tuple[LoadedSample, LoadedSample]]:
    for earlier, later in zip(first, second, strict=False):
        yield from zip(earlier, later, strict=False)


def _count_equal_pairs(pairs: Iterable[tuple[LoadedSample, LoadedSample]]) -> tuple[int, int]:
    """Count the pairs that can be compared, and how many of these pairs have the same random numbers."""
    comparable = [(a.draw, b.draw) for a, b in pairs if a.draw.is_comparable and b.draw.is_comparable]
    return len(comparable), sum(a.equals(b) for a, b in comparable)


def _as_images(batch: torch.Tensor) -> torch.Tensor:
    """Return a batch as float32 of shape (B, C, F, T) on the CPU.

    If the batch has fewer than four axes, the function inserts axes of length 1 after the first axis. If the batch has
    more than four axes, the additional axes are merged into C.
    """
    x = batch.detach().to("cpu", torch.float32)
    while x.ndim < 4:
        x = x.unsqueeze(1)
    return x.reshape(x.shape[0], -1, *x.shape[-2:])


def _find_constant_lines(x: torch.Tensor, before: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a bool tensor of shape (B, lines), which is True for each line that augmentation masked.

    A line is a time frame (``axis`` 2) or a frequency bin (``axis`` 3). A line counts as masked if augmentation made
    its values nearly equal to each other, in every channel. To save time, the function reads only 48 to 72 evenly
    spaced values of a line that has 96 or more values.
    """
    step = max(1, x.shape[axis] // _SPREAD_OVER)
    some = (slice(None),) * axis + (slice(None, None, step),)
    spread, spread_before = (_variance(values[some], axis) for values in (x, before))
    return (spread < _FLAT**2 * spread_before).all(dim=1)


def _variance(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the population variance along an axis, ten times faster than ``torch.var``."""
    return (x - x.mean(dim=axis, keepdim=True)).square_().mean(dim=axis)


def _first_true(flags: torch.Tensor) -> torch.Tensor:
    """Return the position of the first true flag of each row; -1 if no flag is true."""
    return flags.float().argmax(dim=1).masked_fill(~flags.any(dim=1), -1).float()


def _pack_bits(*flags: Any) -> bytes:
    both = torch.cat(flags).numpy()
    return np.packbits(both).tobytes() if both.any() else b""
