"""Decorators by which a dataset class declares what its samples are, so that batches of them can be read at once.

The class stays what it is, and ``dataset[i]`` runs its own code. Where a loader of this package asks for a batch, the
attributes declared are read, and if what they hold is what a class of this package computes to the same bits, it does
(``docs/loader.md`` says when). Everything else, and subclasses that replace a method involved, is read by its own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import is_in_memory, node_of
from chirpid_patch.datasets.rows import is_table
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset
from chirpid_patch.declaration import Class, declares, served
from chirpid_patch.transforms.composition import parts_of
from chirpid_patch.transforms.images import ImageMasks
from chirpid_patch.transforms.spectrograms import is_batchable

_NUMBERS = (float, np.float64, np.float32)


def standardizes_samples(
    *,
    dataset: str,
    indices: str,
    mean: str,
    std: str,
    eps: float = 0.0,
    calls: tuple[str, ...] = (),
    held: Mapping[str, str] | None = None,
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` is ``((x - mean) / (std + eps), y)`` of ``x, y = dataset[indices[i]]``.

    ``dataset``, ``indices``, ``mean`` and ``std`` name attributes; ``eps`` 0 says that nothing is added. ``calls``
    names the methods that ``__getitem__`` calls, ``held`` attributes that hold a method of the object itself.
    """

    def build(state: Mapping[str, Any]) -> WorkerSafeStandardizedDataset | None:
        return standardized(state[dataset], state[indices], state[mean], state[std], eps)

    return declares((dataset, indices, mean, std), calls, build, held=held)


def augments_samples(
    *,
    dataset: str,
    transforms: Mapping[str, str | None],
    training: str | None = None,
    calls: tuple[str, ...] = (),
    held: Mapping[str, str] | None = None,
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` is ``(t(x), y)`` of ``x, y = dataset[i]``, ``t`` one transform after the other.

    ``dataset`` names an attribute, ``transforms`` those of the transforms, each with the attribute that switches it
    on: another one, which is then True or False, or its own, which is then None for none; None: it is always on.
    ``training`` names the attribute that switches all of them. ``calls`` and ``held``: see ``standardizes_samples``.
    """
    flags = {gate for name, gate in [*transforms.items(), (None, training)] if gate is not None and gate != name}

    def build(state: Mapping[str, Any]) -> WorkerSafeAugmentedDataset | None:
        below = served(state[dataset])
        if any(type(state[flag]) is not bool for flag in flags) or not _gives_pairs(below):
            return None
        on = training is None or state[training]
        chosen = [state[name] for name, gate in transforms.items() if on and not _is_off(state, name, gate)]
        if not all(is_batchable(part) for place, one in enumerate(chosen) for _, part in parts_of(one, (place,))):
            return None
        return WorkerSafeAugmentedDataset(below, training=on, transforms=chosen)

    return declares((dataset, *transforms, *sorted(flags)), calls, build, held=held)


def augments_images(
    *,
    dataset: str,
    augmenter: str,
    training: str | None = None,
    eps: float = 0.0,
    divisor: float = 1.0,
    calls: tuple[str, ...] = (),
    held: Mapping[str, str] | None = None,
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` is ``(t(x), y)`` of ``x, y = dataset[i]``, ``t`` masking an 8-bit image of x (1, F, T).

    The image is ``(x - min) / (max - min + eps) * 255`` cut to whole numbers; ``augmenter`` is called with it, and its
    values, divided by ``divisor``, become a float32 tensor (1, F, T). ``training`` names the attribute that switches
    it. Samples of other shapes, or without a range, are read by the class's own code, and all of them are where the
    augmenter does not declare that it masks images (``masks_images``). ``calls`` and ``held``: see
    ``standardizes_samples``.
    """
    attributes = (dataset, augmenter) if training is None else (dataset, augmenter, training)

    def build(state: Mapping[str, Any]) -> WorkerSafeAugmentedDataset | None:
        below = served(state[dataset])
        rows, on = _pair_rows(below), True if training is None else state[training]
        if rows is None or type(on) is not bool:
            return None
        if not on:
            return WorkerSafeAugmentedDataset(below, training=False, transforms=[])
        given = state[augmenter]
        masks = served(given, of_images=True)
        if masks is given or hasattr(type(given), "__bool__") or hasattr(type(given), "__len__"):
            return None
        transform = ImageMasks(masks, eps, divisor)
        return WorkerSafeAugmentedDataset(below, transforms=[transform]) if transform.takes(*rows) else None

    return declares(attributes, calls, build, held=held)


def lists_samples(
    samples: str, *, calls: tuple[str, ...] = (), held: Mapping[str, str] | None = None
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` is ``samples[i]``, an attribute by its name.

    ``calls`` and ``held``: see ``standardizes_samples``.
    """

    def build(state: Mapping[str, Any]) -> WorkerSafeSequenceDataset | None:
        listed = served(state[samples])
        known = type(listed) in (list, tuple) or (node_of(listed).row_kinds is not None and is_in_memory(listed))
        return WorkerSafeSequenceDataset(listed) if known else None

    return declares((samples,), calls, build, held=held)


def standardized(dataset: Any, indices: Any, mean: Any, std: Any, eps: float) -> WorkerSafeStandardizedDataset | None:
    """``((x - mean) / (std + eps), y)`` of the samples (x, y) of ``dataset`` at ``indices``, as it is now.

    ``eps`` 0: nothing is added. None where that could be told from the expression evaluated sample by sample.
    """
    below = served(dataset)
    rows = _pair_rows(below)
    if rows is None or not is_table(indices) or not (_is_statistic(mean) and _is_statistic(std)):
        return None
    view = WorkerSafeStandardizedDataset(below, indices, mean, std, eps=eps)
    view._cached = (mean, std + eps if eps else std), {}
    return view if view.keeps_rows(torch.empty((1, *rows[1]), dtype=rows[0], device="meta")) else None


def _is_off(state: Mapping[str, Any], name: str, gate: str | None) -> bool:
    return gate is not None and (state[name] is None if gate == name else not state[gate])


def _pair_rows(dataset: Any) -> tuple[torch.dtype, torch.Size] | None:
    """Dtype and shape of the x of all samples (x, y), rows of floating-point tensors; None where that is not sure."""
    kinds = node_of(dataset).row_kinds
    return kinds[0] if kinds is not None and len(kinds) == 2 and kinds[0][0].is_floating_point else None


def _gives_pairs(dataset: Any) -> bool:
    """Whether samples are rows of tensors in pairs, or those of a list, which may be looked at one by one."""
    listed = dataset.data_list if type(dataset) is WorkerSafeSequenceDataset else dataset
    return type(listed) in (list, tuple) or _pair_rows(dataset) is not None


def _is_statistic(value: Any) -> bool:
    """Whether ``value`` is a number or a plain tensor of numbers."""
    if type(value) is Tensor:
        plain = value.layout is torch.strided and not value.requires_grad
        return value.device.type == "cpu" and plain and value.is_floating_point()
    return type(value) in _NUMBERS
