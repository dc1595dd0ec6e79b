"""Decorators that declare how a dataset class computes its samples, so that loaders can read whole batches.

A decorator does not change the class: ``dataset[i]`` still runs the class's own code. When a loader of this package
needs a batch, the loader computes the batch from the declared attributes of the dataset. The batch is equal, bit for
bit, to the collated samples. If the batch could differ from the collated samples, the class's own code reads the
samples. ``docs/loader.md`` lists the cases in which a batch could differ. If a subclass overrides a declared method,
the code of the subclass reads the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import gather_node, is_in_memory
from chirpid_patch.datasets.rows import is_lookup_table
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset
from chirpid_patch.declaration import Class, batched_object_for, declare_method
from chirpid_patch.transforms.composition import split_transform
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
    """Declare that ``self[i]`` returns ``((x - mean) / (std + eps), y)`` with ``x, y = dataset[indices[i]]``.

    In these expressions, ``dataset``, ``indices``, ``mean`` and ``std`` are attributes of ``self``. The arguments are
    the names of the attributes.

    Args:
        dataset: name of the attribute with the inner dataset, from which ``self[i]`` reads x and y.
        indices: name of the attribute with the indices of the samples in the inner dataset.
        mean: name of the attribute with the mean, which is subtracted from x.
        std: name of the attribute with the standard deviation, by which x is divided.
        eps: number that the class adds to the standard deviation; 0 for none.
        calls: names of the methods of the class that ``__getitem__`` calls, also indirectly. If a subclass or other
            code replaces one of these methods, loaders ignore the declaration.
        held: for methods that ``__getitem__`` calls through an attribute: a dictionary with the name of the attribute
            as key and the name of the method as value. For ``self.load = self.load_wav``, pass
            ``{"load": "load_wav"}``. If the attribute has another value, loaders ignore the declaration. None: no such
            attribute.
    """

    def build(state: Mapping[str, Any]) -> WorkerSafeStandardizedDataset | None:
        return standardized_dataset(state[dataset], state[indices], state[mean], state[std], eps)

    return declare_method((dataset, indices, mean, std), calls, build, held=held)


def augments_samples(
    *,
    dataset: str,
    transforms: Mapping[str, str | None],
    training: str | None = None,
    calls: tuple[str, ...] = (),
    held: Mapping[str, str] | None = None,
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` applies transforms to x and returns ``(t(x), y)`` with ``x, y = dataset[i]``.

    ``t`` applies all transforms in the order of ``transforms``.

    Args:
        dataset: name of the attribute with the inner dataset, from which ``self[i]`` reads x and y.
        transforms: maps the name of each attribute that contains a transform to the name of a second attribute, the
            switch. The switch is True (transform on) or False (transform off). If the class skips a transform that is
            None, the attribute is its own switch, as in ``{"noise": "noise"}``. If a transform is always on, pass None
            as the switch.
        training: name of the attribute that switches all transforms on or off; None: no attribute switches all
            transforms.
        calls: as for ``standardizes_samples``.
        held: as for ``standardizes_samples``.
    """
    flags = {gate for name, gate in [*transforms.items(), (None, training)] if gate is not None and gate != name}

    def build(state: Mapping[str, Any]) -> WorkerSafeAugmentedDataset | None:
        below = batched_object_for(state[dataset])
        if any(type(state[flag]) is not bool for flag in flags) or not _gives_pairs(below):
            return None
        on = training is None or state[training]
        chosen = [state[name] for name, gate in transforms.items() if on and not _is_off(state, name, gate)]
        if not all(
            is_batchable(part) for place, one in enumerate(chosen) for _, part in split_transform(one, (place,))
        ):
            return None
        return WorkerSafeAugmentedDataset(below, training=on, transforms=chosen)

    return declare_method((dataset, *transforms, *sorted(flags)), calls, build, held=held)


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
    """Declare that ``self[i]`` returns ``(t(x), y)`` with ``x, y = dataset[i]``, where ``t`` masks x as an 8-bit image.

    ``t`` applies three steps to an x of shape (1, F, T):

    * Convert x to an image: ``(x - min) / (max - min + eps) * 255``, truncated to integers.
    * Call the augmenter with the image.
    * Divide the resulting image by ``divisor``, and convert the image to a float32 tensor (1, F, T).

    Loaders compute these steps for whole batches only if the class of the augmenter has the decorator ``masks_images``.
    Otherwise the dataset's own code reads the samples. The dataset's own code also reads samples of another shape or of
    another dtype than float32, and samples whose values are all equal or not all finite.

    Args:
        dataset: name of the attribute with the inner dataset, from which ``self[i]`` reads x and y.
        augmenter: name of the attribute with the augmenter, an object that masks 8-bit images.
        training: name of the attribute that switches all three steps on or off. If the attribute is False, ``self[i]``
            returns ``(x, y)``. None: the steps are always on.
        eps: number that the class adds to ``max - min``; 0 for none.
        divisor: number by which the class divides the values of the image.
        calls: as for ``standardizes_samples``.
        held: as for ``standardizes_samples``.
    """
    attributes = (dataset, augmenter) if training is None else (dataset, augmenter, training)

    def build(state: Mapping[str, Any]) -> WorkerSafeAugmentedDataset | None:
        below = batched_object_for(state[dataset])
        rows, on = _pair_rows(below), True if training is None else state[training]
        if rows is None or type(on) is not bool:
            return None
        if not on:
            return WorkerSafeAugmentedDataset(below, training=False, transforms=[])
        given = state[augmenter]
        masks = batched_object_for(given, of_images=True)
        if masks is given or hasattr(type(given), "__bool__") or hasattr(type(given), "__len__"):
            return None
        transform = ImageMasks(masks, eps, divisor)
        return WorkerSafeAugmentedDataset(below, transforms=[transform]) if transform.supports(*rows) else None

    return declare_method(attributes, calls, build, held=held)


def lists_samples(
    samples: str, *, calls: tuple[str, ...] = (), held: Mapping[str, str] | None = None
) -> Callable[[Class], Class]:
    """Declare that ``self[i]`` returns ``samples[i]``.

    Args:
        samples: name of the attribute with the list of samples.
        calls: as for ``standardizes_samples``.
        held: as for ``standardizes_samples``.
    """

    def build(state: Mapping[str, Any]) -> WorkerSafeSequenceDataset | None:
        listed = batched_object_for(state[samples])
        known = type(listed) in (list, tuple) or (gather_node(listed).row_kinds is not None and is_in_memory(listed))
        return WorkerSafeSequenceDataset(listed) if known else None

    return declare_method((samples,), calls, build, held=held)


def standardized_dataset(
    dataset: Any, indices: Any, mean: Any, std: Any, eps: float
) -> WorkerSafeStandardizedDataset | None:
    """Return a dataset of the samples ``((x - mean) / (std + eps), y)`` with ``x, y = dataset[indices[i]]``.

    The result is None if a batch of the dataset could differ from the collated single samples.
    """
    below = batched_object_for(dataset)
    rows = _pair_rows(below)
    if rows is None or not is_lookup_table(indices) or not (_is_statistic(mean) and _is_statistic(std)):
        return None
    view = WorkerSafeStandardizedDataset(below, indices, mean, std, eps=eps)
    view._cached = (mean, std + eps if eps else std), {}
    return view if view.keeps_rows(torch.empty((1, *rows[1]), dtype=rows[0], device="meta")) else None


def _is_off(state: Mapping[str, Any], name: str, gate: str | None) -> bool:
    return gate is not None and (state[name] is None if gate == name else not state[gate])


def _pair_rows(dataset: Any) -> tuple[torch.dtype, torch.Size] | None:
    """Return dtype and shape of x, if the samples (x, y) provably are rows of two tensors and x is floating-point.

    For other datasets, the result is None.
    """
    kinds = gather_node(dataset).row_kinds
    return kinds[0] if kinds is not None and len(kinds) == 2 and kinds[0][0].is_floating_point else None


def _gives_pairs(dataset: Any) -> bool:
    """Return whether the samples of ``dataset`` are items of a list, or pairs (x, y) of rows of two tensors."""
    listed = dataset.data_list if type(dataset) is WorkerSafeSequenceDataset else dataset
    return type(listed) in (list, tuple) or _pair_rows(dataset) is not None


def _is_statistic(value: Any) -> bool:
    """Return whether ``value`` can be a mean or deviation: a float or a plain floating-point CPU tensor."""
    if type(value) is Tensor:
        plain = value.layout is torch.strided and not value.requires_grad
        return value.device.type == "cpu" and plain and value.is_floating_point()
    return type(value) in _NUMBERS
