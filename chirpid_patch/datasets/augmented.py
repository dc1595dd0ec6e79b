"""A dataset that augments the samples of another dataset, and can be pickled for worker processes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from torch import Tensor

from chirpid_patch.datasets.gather import Batch, BatchPart, RowKinds, WrappingDataset, gather_node
from chirpid_patch.datasets.samples import fetch_pair_batch, fetch_sample, stack_until_layout_differs
from chirpid_patch.randomness.keyed_random import Keys, RandomKey, draw_random_keys, hash_into_keys
from chirpid_patch.transforms.composition import Position, split_transform
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
            raise TypeError(f"{what} has no parameter {name!r}; the parameters are {', '.join(allowed)}")


def _build(kind: type[SpecAugment] | type[GaussianNoise], params: Mapping[str, Any] | None) -> Transform:
    given = params or {}
    _check_names(given, list(inspect.signature(kind).parameters), kind.__name__)
    return kind(**given)


def _chain(
    params: Mapping[str, Any] | None, use_spec_augment: bool | None, use_gaussian_noise: bool | None
) -> list[Transform]:
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
    # This line also builds transforms that are off, so that a misspelt parameter always raises an error.
    stages = [_build(SpecAugment, spec), _build(GaussianNoise, noise)]
    return [stage for stage, on in zip(stages, wanted, strict=True) if on]


def _at(keys: Keys | None, place: int) -> Keys | None:
    return None if keys is None else keys[place : place + 1]


class WorkerSafeAugmentedDataset(WrappingDataset):
    """A dataset that augments the samples (x, y) of another dataset.

    While ``training`` is True, the dataset applies transforms to x.

    The dataset copies the dictionary ``augment_params``, so later changes of the dictionary have no effect. The
    transforms in ``transforms`` are not copied. Transforms of this package never write to the memory of
    ``base_dataset``.

    If every transform is from this package, loaders augment a whole batch at once. A ``Compose`` or ``nn.Sequential``
    of transforms of this package also permits whole batches. With any other transform, the dataset calls all transforms
    with single samples.

    Args:
        base_dataset: map-style dataset of samples (x, y).
        augment_params: dictionary with the parameters of ``SpecAugment``. To also apply ``GaussianNoise``, pass a
            dictionary with the keys ``spec_augment_params`` and ``gaussian_noise_params``, whose values are
            dictionaries with the parameters of the two transforms. If one of these keys is missing or has the value
            None, the dataset does not apply the transform of this key. With ``augment_params=None``, the dataset
            applies ``SpecAugment`` with its defaults.
        training: whether to augment samples. ``set_training`` changes this setting later.
        use_spec_augment: whether to apply ``SpecAugment``. None: ``augment_params`` determines whether the dataset
            applies this transform.
        use_gaussian_noise: whether to apply ``GaussianNoise``. None: ``augment_params`` determines whether the dataset
            applies this transform.
        transforms: list of transforms, which the dataset applies in this order. Each transform is a function from
            tensor to tensor. The dataset ignores items that are None. If ``transforms`` is passed, do not pass
            ``augment_params``, ``use_spec_augment`` or ``use_gaussian_noise``. With ``transforms=None``, these three
            arguments select the transforms.

    Raises:
        TypeError: ``augment_params`` contains an unknown parameter, or ``transforms`` is passed together with
            ``augment_params``, ``use_spec_augment`` or ``use_gaussian_noise``.
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
            raise TypeError("pass transforms alone, without augment_params, use_spec_augment and use_gaussian_noise")

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
        """Switch augmentation on (True) or off (False)."""
        self.training = training

    def __len__(self) -> int:
        return len(self.base_dataset)

    def _is_ours(self) -> bool:
        """Return whether all applied transforms are from this package; True if ``training`` is False."""
        return not self.training or self._is_batchable()

    def _is_batchable(self) -> bool:
        return all(is_batchable(transform) for _, transform in self._stages())

    def _stages(self) -> list[tuple[Position, Transform]]:
        """Return a pair (position, transform) for each single transform.

        A composed transform counts as several transforms (see ``split_transform``). For example, the position (2, 0) is
        the first part of the composed transform ``transforms[2]``.
        """
        on = ((place, one) for place, one in enumerate(self.transforms) if one is not None)
        return [part for place, one in on for part in split_transform(one, (place,))]

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        # While training, the result is None, because reading a sample makes random calls, even if only the label is
        # needed.
        return None if self.training else [BatchPart(self.base_dataset, list(indices))]

    def read_sample(self, index: Any, key: RandomKey | None) -> tuple[Any, Any]:
        x, y = fetch_sample(self.base_dataset, index, None if key is None else key.deeper())
        if self.training:
            x = self._augment(x, self._sample_keys(key, 1))
        return x, y

    def _sample_keys(self, key: RandomKey | None, count: int) -> Keys | None:
        """Return a 64-bit key for each of ``count`` samples, from which transforms compute random numbers.

        The result depends only on ``key`` and ``count``. With ``key=None``, the 64-bit keys are random. If no transform
        uses keys, the result is None, and the function calls no random generator.
        """
        if not any(is_batchable(one) for _, one in self._stages()):
            return None
        return draw_random_keys(count) if key is None else key.sample_keys()

    def _augment(self, x: Any, keys: Keys | None) -> Any:
        """Apply all transforms to the x of one sample; ``keys`` contains the key of this sample, or is None."""
        for position, transform in self._stages():
            if keys is not None and isinstance(transform, BatchTransform) and is_batchable(transform):
                x = transform.transform_sample(x, hash_into_keys(keys, *position))
            else:
                x = transform(x)
        return x

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        if not self._is_ours():
            return None  # PyTorch's loader runs the transforms of each sample before it reads the next sample
        pairs = fetch_pair_batch(self.base_dataset, indices, None if key is None else key.deeper())
        if pairs is None or not self.training:
            return None if pairs is None else list(pairs)
        if not self._supports_batches(pairs[0]):
            return None  # the caller then reads single samples, and the transform raises its error
        return [self._augment_batch(pairs[0], self._sample_keys(key, len(indices))), pairs[1]]

    def read_samples(self, indices: Sequence[Any], key: RandomKey) -> list[Any]:
        """Read samples of the inner dataset one by one, and augment the samples.

        If all x have the same shape and dtype, the transforms augment all x as one batch.
        """
        replaced = type(self).read_sample is not WorkerSafeAugmentedDataset.read_sample
        if replaced or not (self.training and self._is_batchable()):
            return super().read_samples(indices, key)
        keys, below = self._sample_keys(key, len(indices)), key.deeper()
        read = (fetch_sample(self.base_dataset, index, below.take([place])) for place, index in enumerate(indices))
        rows, ys, others = stack_until_layout_differs(read, len(indices), self._supports_batches)
        if rows is not None and len(ys) == len(indices):
            return list(zip(self._augment_batch(rows, keys).unbind(0), ys, strict=True))
        samples = chain(() if rows is None else zip(rows, ys, strict=False), others, read)
        return [(self._augment(x, _at(keys, place)), y) for place, (x, y) in enumerate(samples)]

    def _supports_batches(self, xs: Tensor) -> bool:
        """Return whether all transforms support batches of samples with the shape and dtype of ``xs``."""
        try:
            for _, transform in self._stages():
                transform.check(xs)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            return False
        return True

    def _augment_batch(self, xs: Tensor, keys: Keys | None) -> Tensor:
        """Apply all transforms to the batch ``xs``, and return the new batch.

        ``xs`` must not share memory with other tensors, because a transform may change ``xs`` in place.
        """
        for position, transform in self._stages():
            assert isinstance(transform, BatchTransform) and keys is not None
            xs = transform.transform_batch(xs, hash_into_keys(keys, *position))
        return xs
