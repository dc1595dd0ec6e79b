"""Augmented samples of another dataset: picklable, and without shared state."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from torch import Tensor

from chirpid_patch.datasets.gather import Batch, Part, RowKinds, WrappingDataset, gather_node
from chirpid_patch.datasets.samples import fetch_pairs, fetch_sample, stack_while_alike
from chirpid_patch.randomness.keyed_random import Keys, RandomKey, fold_in, keys_for
from chirpid_patch.transforms.composition import Position, transform_parts
from chirpid_patch.transforms.spectrograms import (
    BatchTransform,
    GaussianNoise,
    SpecAugment,
    Transform,
    is_batchable,
    works_in_place,
)

_STAGES = ("spec_augment_params", "gaussian_noise_params")


def _check_names(given: Mapping[str, Any], allowed: Sequence[str], what: str) -> None:
    for name in given:
        if name not in allowed:
            raise TypeError(f"{what} has no parameter {name!r}; it has {', '.join(allowed)}")


def _build(kind: type[SpecAugment] | type[GaussianNoise], params: Mapping[str, Any] | None) -> Transform:
    given = params or {}
    _check_names(given, list(inspect.signature(kind).parameters), kind.__name__)
    return kind(**given)


def _chain(
    params: Mapping[str, Any] | None, use_spec_augment: bool | None, use_gaussian_noise: bool | None
) -> list[Transform]:
    """Return the transforms that ``augment_params`` and the two switches select."""
    given = params or {}
    if any(stage in given for stage in _STAGES):
        _check_names(given, _STAGES, "augment_params")
        spec, noise = (given.get(stage) for stage in _STAGES)
        wanted = [spec is not None, noise is not None]
    else:
        spec, noise = given, None
        wanted = [True, False]
    if use_spec_augment is not None:
        wanted[0] = use_spec_augment
    if use_gaussian_noise is not None:
        wanted[1] = use_gaussian_noise
    # Built even where switched off, so that a misspelt parameter is reported either way.
    stages = [_build(SpecAugment, spec), _build(GaussianNoise, noise)]
    return [stage for stage, on in zip(stages, wanted, strict=True) if on]


def _at(keys: Keys | None, place: int) -> Keys | None:
    return None if keys is None else keys[place : place + 1]


class WorkerSafeAugmentedDataset(WrappingDataset):
    """Samples (x, y) of another dataset, with x augmented while ``training`` is true.

    The dataset copies all parameters, so it shares nothing with the caller. It uses ``transforms`` without copying
    them. Transforms of this package never write to the memory of ``base_dataset``. Other callables get single samples.

    Loaders augment whole batches if all parts of the chain are transforms of this package. The dataset replaces
    composed transforms by their parts: ``Compose`` and ``Lambda`` of this package and of torchvision, and
    ``nn.Sequential``.

    Args:
        base_dataset: map-style dataset of samples (x, y).
        augment_params: parameters of ``SpecAugment``; or ``{'spec_augment_params': …, 'gaussian_noise_params': …}``,
            where None omits a stage. None: ``SpecAugment`` with its defaults.
        training: whether samples are augmented.
        use_spec_augment: switches ``SpecAugment`` on or off; None follows ``augment_params``.
        use_gaussian_noise: switches ``GaussianNoise`` on or off; None follows ``augment_params``.
        transforms: the chain itself, instead of the arguments above: callables from tensor to tensor, and None for a
            stage that is off.

    Raises:
        TypeError: unknown parameters, or both ``augment_params`` and ``transforms``.
    """

    keyed = True

    def __init__(
        self,
        base_dataset: Any,
        augment_params: Mapping[str, Any] | None = None,
        training: bool = True,
        *,
        use_spec_augment: bool | None = None,
        use_gaussian_noise: bool | None = None,
        transforms: Sequence[Transform | None] | None = None,
    ) -> None:
        self.base_dataset = base_dataset
        self.training = training
        self.augment_params = deepcopy(augment_params)
        if transforms is None:
            self.transforms: list[Transform | None] = [
                *_chain(self.augment_params, use_spec_augment, use_gaussian_noise)
            ]
        elif augment_params is None and use_spec_augment is None and use_gaussian_noise is None:
            self.transforms = [*transforms]
        else:
            raise TypeError("pass either transforms or augment_params with its switches, not both")

    @property
    def in_memory(self) -> bool:
        return super().in_memory and self._is_ours()

    @property
    def gathers(self) -> bool:
        return super().gathers and self._is_ours()

    @property
    def fixed_samples(self) -> bool:
        return not (self.training and self._stages()) and super().fixed_samples

    @property
    def row_kinds(self) -> RowKinds | None:
        stages = self._stages() if self.training else []
        kept = all(is_batchable(one) and works_in_place(one) for _, one in stages)
        return gather_node(self.base_dataset).row_kinds if kept else None

    @property
    def count(self) -> int | None:
        return gather_node(self.base_dataset).count

    def set_training(self, training: bool) -> None:
        """Switch augmentation on or off."""
        self.training = training

    def __len__(self) -> int:
        return len(self.base_dataset)

    def _is_ours(self) -> bool:
        """Return whether only transforms of this package are on."""
        return not self.training or self._is_batchable()

    def _is_batchable(self) -> bool:
        return all(is_batchable(transform) for _, transform in self._stages())

    def _stages(self) -> list[tuple[Position, Transform]]:
        """Return the position and the transform of each stage that is on. Compositions are replaced by their parts."""
        on = ((place, one) for place, one in enumerate(self.transforms) if one is not None)
        return [part for place, one in on for part in transform_parts(one, (place,))]

    def resolve(self, indices: Sequence[Any]) -> list[Part] | None:
        # None while training, because the dataset then uses ``random`` for every sample.
        return None if self.training else [Part(self.base_dataset, list(indices))]

    def read_sample(self, index: Any, key: RandomKey | None) -> tuple[Any, Any]:
        x, y = fetch_sample(self.base_dataset, index, None if key is None else key.deeper())
        if self.training:
            x = self._augment(x, self._sample_keys(key, 1))
        return x, y

    def _sample_keys(self, key: RandomKey | None, count: int) -> Keys | None:
        """Return a key for each of ``count`` samples; None, without a random call, if no transform uses keys."""
        return keys_for(key, count) if any(is_batchable(one) for _, one in self._stages()) else None

    def _augment(self, x: Any, keys: Keys | None) -> Any:
        """Apply the chain to one sample, whose key has the shape (1,)."""
        for position, transform in self._stages():
            if keys is not None and isinstance(transform, BatchTransform) and is_batchable(transform):
                x = transform.transform_sample(x, fold_in(keys, *position))
            else:
                x = transform(x)
        return x

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        if not self._is_ours():
            return None  # other code gets each sample before the next one is read
        pairs = fetch_pairs(self.base_dataset, indices, None if key is None else key.deeper())
        if pairs is None or not self.training:
            return None if pairs is None else list(pairs)
        if not self._supports_batches(pairs[0]):
            return None  # single samples raise their own errors
        return [self._augment_batch(pairs[0], self._sample_keys(key, len(indices))), pairs[1]]

    def read_samples(self, indices: Sequence[Any], key: RandomKey) -> list[Any]:
        """Read and copy samples of another dataset one by one; transform them at once if shapes and dtypes agree."""
        replaced = type(self).read_sample is not WorkerSafeAugmentedDataset.read_sample
        if replaced or not (self.training and self._is_batchable()):
            return super().read_samples(indices, key)
        keys, below = self._sample_keys(key, len(indices)), key.deeper()
        read = (fetch_sample(self.base_dataset, index, below.take([place])) for place, index in enumerate(indices))
        rows, ys, others = stack_while_alike(read, len(indices), self._supports_batches)
        if rows is not None and len(ys) == len(indices):
            return list(zip(self._augment_batch(rows, keys).unbind(0), ys, strict=True))
        samples = chain(() if rows is None else zip(rows, ys, strict=False), others, read)
        return [(self._augment(x, _at(keys, place)), y) for place, (x, y) in enumerate(samples)]

    def _supports_batches(self, xs: Tensor) -> bool:
        """Return whether all transforms support batches of samples like ``xs``."""
        try:
            for _, transform in self._stages():
                transform.check(xs)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            return False
        return True

    def _augment_batch(self, xs: Tensor, keys: Keys | None) -> Tensor:
        """Apply the chain to a batch of x that shares no memory."""
        for position, transform in self._stages():
            assert isinstance(transform, BatchTransform) and keys is not None
            xs = transform.transform_batch(xs, fold_in(keys, *position))
        return xs
