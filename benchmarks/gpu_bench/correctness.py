"""Check that all loaders yield the same batches: equal up to float rounding, or augmented with one distribution."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from chirp_migrate.stats.ratios import holm_adjusted, ks_p_value

from .original import Data
from .ways import Loading, Running, host_loader, pinned_loader, resident_loader

_TOLERANCE = 1e-5  # for standardised samples, whose values are about 1
_SIGNIFICANT = 0.01
_OURS = {"pinned": pinned_loader, "resident": resident_loader}


@dataclass(frozen=True)
class Check:
    """One condition: its name, what was found, and whether it holds."""

    what: str
    found: str
    holds: bool


def check(data: Data, batch_size: int, device: torch.device) -> list[Check]:
    """Run all checks, over one epoch of each loader."""
    plain = Loading(data, batch_size, False, device)
    augmented = Loading(data, batch_size, True, device)
    checks = [_same_batches(name, plain) for name in _OURS]
    original = _values(DataLoader(data.original(augmented=True), batch_size, shuffle=True), seed=1)
    by_name = {name: _values(make(augmented), seed=2) for name, make in _OURS.items()}
    adjusted = holm_adjusted([p for values in by_name.values() for p in _p_values(original, values)])
    for number, name in enumerate(by_name):
        smallest = min(adjusted[number * len(_STATISTICS) : (number + 1) * len(_STATISTICS)])
        found = f"smallest adjusted p of {len(_STATISTICS)} statistics {smallest:.2g}"
        what = f"augmented, {name}: samples distributed as the original code's"
        checks.append(Check(what, found, smallest >= _SIGNIFICANT))
    return checks


def _seeded(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _epoch(batches: Running, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the batches of an epoch on the CPU, and close the loader."""
    _seeded(seed)
    try:
        return [(x.cpu(), y.cpu()) for x, y in batches]
    finally:
        batches.close()


def _same_batches(name: str, loading: Loading) -> Check:
    what = f"not augmented, {name}: batches of a shuffled epoch equal the CPU path's"
    expected, found = _epoch(host_loader(loading), 0), _epoch(_OURS[name](loading), 0)
    if [x.shape for x, _ in expected] != [x.shape for x, _ in found]:
        return Check(what, "other numbers or sizes of batches", False)
    if not all(torch.equal(one[1], other[1]) for one, other in zip(expected, found, strict=True)):
        return Check(what, "other labels, or another order", False)
    pairs = zip(expected, found, strict=True)
    largest = max(float((one[0].double() - other[0].double()).abs().max()) for one, other in pairs)
    return Check(what, f"largest difference {largest:.2g}", largest <= _TOLERANCE)


#: Statistics of each sample.
_STATISTICS = ("mean", "deviation", "share of zeros", "smallest value", "largest value")


def _values(batches: Running | DataLoader[tuple[Tensor, Tensor]], seed: int) -> np.ndarray:
    """Return ``_STATISTICS`` of each sample of an epoch, of shape (samples, statistics)."""
    _seeded(seed)
    parts = []
    for x, _ in batches:
        flat = x.flatten(1).double()
        zeros = (flat == 0).double().mean(1)
        parts.append(torch.stack([flat.mean(1), flat.std(1), zeros, flat.amin(1), flat.amax(1)], 1).cpu())
    if isinstance(batches, Running):
        batches.close()
    return torch.cat(parts).numpy()


def _p_values(one: np.ndarray, other: np.ndarray) -> list[float]:
    return [ks_p_value(one[:, column], other[:, column]) for column in range(one.shape[1])]
