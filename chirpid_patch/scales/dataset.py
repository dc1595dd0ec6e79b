"""Samples with one base image each, which is scaled when a scale is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import Batch, WrappingDataset, fetch_batch
from chirpid_patch.datasets.samples import fetch_pairs, fetch_sample
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.randomness.random_states import restored_generators
from chirpid_patch.scales.groups import group_scales, image_bytes
from chirpid_patch.scales.scaling import ScaleTo, as_float, image_tensor
from chirpid_patch.transforms.spectrograms import Transform
from chirpid_patch.transforms.symmetries import FlipsAndTurns


class MultiScaleDataset(WrappingDataset):
    """The samples of ``base_dataset`` for training at several scales.

    A sample of this dataset is a dictionary of ``"label"`` (or all keys but ``"image"`` of a dictionary of the base
    dataset) and

    * ``"base_image"``, the image (C, H, W) of the base dataset, and ``"scales"``, int64 of shape (S,).
      ``get_scale_image``, ``scaling.scale_images`` and ``step.MultiScaleStep`` compute scales when they are needed.
    * or, with ``memory_efficient=False``, ``"image_224"`` and so on: every scale at once, floating-point (C, scale,
      scale). This needs several times the memory, and exists for comparison.

    8-bit base images stay 8-bit until they are scaled, which needs a quarter of the memory of float32.

    Args:
        base_dataset: samples ``(image, label)``, ``(image,)``, or dictionaries with ``"image"``; the image as for
            ``scaling.image_tensor``.
        scales: sizes of square images, in pixels.
        augment: True mirrors and turns the base image (``FlipsAndTurns``); or a sequence of your own transforms.
            Augmentation comes before scaling, so it is the same at every scale of a sample. The loader keys its
            randomness as in ``WorkerSafeAugmentedDataset``: independent of the number of workers.
        memory_efficient: whether samples contain the base image only.
        memory_budget: bytes that the scaled images of a batch of ``batch_size`` may take at once, see
            ``_group_scales_by_memory``; None is no limit.
        batch_size: samples in a batch, for ``memory_budget``.

    Raises:
        ValueError: there are no scales, a scale is repeated or below 1, or ``memory_budget`` is not positive.
    """

    gathers = False  # samples are dictionaries

    def __init__(
        self,
        base_dataset: Any,
        scales: Sequence[int],
        augment: bool | Sequence[Transform] = False,
        memory_efficient: bool = True,
        *,
        memory_budget: int | None = None,
        batch_size: int = 1,
    ) -> None:
        self.scales = check_scales(scales)
        if memory_budget is not None and memory_budget <= 0:
            raise ValueError(f"memory_budget is a number of bytes above 0, not {memory_budget}")
        self.memory_efficient = memory_efficient
        self.memory_budget = memory_budget
        self.batch_size = batch_size
        #: For each scale, the transform of an image or a batch of images to that scale.
        self.transforms = {scale: ScaleTo(scale) for scale in self.scales}
        stages = ([FlipsAndTurns()] if augment else []) if isinstance(augment, bool) else list(augment)
        self._images = _ImagePairs(base_dataset)
        self._augmented = WorkerSafeAugmentedDataset(self._images, transforms=stages, training=bool(stages))

    @property
    def base_dataset(self) -> Any:
        """Return the inner dataset."""
        return self._images.base_dataset

    @base_dataset.setter
    def base_dataset(self, dataset: Any) -> None:
        self._images.base_dataset = dataset

    @property
    def augment(self) -> bool:
        """Return whether base images are augmented."""
        return self._augmented.training

    def set_training(self, training: bool) -> None:
        """Switch augmentation on or off."""
        self._augmented.set_training(training)

    @property
    def in_memory(self) -> bool:
        return self.memory_efficient and self._augmented.in_memory

    @property
    def fixed_samples(self) -> bool:
        return self._augmented.fixed_samples

    @property
    def keyed(self) -> bool:
        return self._augmented.keyed

    def __len__(self) -> int:
        return len(self._images)

    def read_sample(self, index: Any, key: RandomKey | None) -> dict[str, Any]:
        image, rest = fetch_sample(self._augmented, index, key)
        if self.memory_efficient:
            return {**rest, "base_image": image, "scales": torch.tensor(self.scales)}
        return {**rest, **{f"image_{scale}": self.get_scale_image(image, scale) for scale in self.scales}}

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        pairs = fetch_pairs(self._augmented, indices, key) if self.in_memory else None
        if pairs is None:
            return None
        images, rest = pairs
        scales = torch.tensor(self.scales).repeat(len(images), 1)
        return cast(Batch, {**rest, "base_image": images, "scales": scales})

    def get_scale_image(self, base_image: Any, scale: int) -> Tensor:
        """Return ``base_image``, or a batch (B, C, H, W) of them, at ``scale``: see ``scaling.scale_images``."""
        return ScaleTo(scale)(base_image)

    def _group_scales_by_memory(self) -> list[list[int]]:
        """Return the scales in groups whose scaled images, for a batch, fit into ``memory_budget`` together.

        Without a budget each scale is a group. Channels and dtype are those of the first base image.
        """
        if self.memory_budget is None or not len(self):
            return [[scale] for scale in self.scales]
        with restored_generators(self.base_dataset):
            first = as_float(self._images[0][0][:, :1, :1])

        def need(scale: int) -> int:
            return image_bytes(scale, channels=len(first), batch_size=self.batch_size, dtype=first.dtype)

        return group_scales(self.scales, need, self.memory_budget)


def check_scales(scales: Sequence[int]) -> list[int]:
    """Return ``scales`` as a list of ints.

    Raises:
        ValueError: there are no scales, or a scale is below 1 or repeated.
    """
    found = [int(scale) for scale in scales]
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise ValueError(f"scales must be different sizes in pixels, such as (224, 448, 672), not {list(scales)}")
    return found


class _ImagePairs(WrappingDataset):
    """The samples of another dataset as pairs (image tensor, dictionary of the rest)."""

    def __init__(self, base_dataset: Any) -> None:
        self.base_dataset = base_dataset

    def __len__(self) -> int:
        return len(self.base_dataset)

    def read_sample(self, index: Any, key: RandomKey | None) -> tuple[Tensor, dict[str, Any]]:
        image, rest = _split_sample(fetch_sample(self.base_dataset, index, key))
        return image_tensor(image), rest

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        batch = fetch_batch(self.base_dataset, indices, key)
        if not isinstance(batch, list) or len(batch) not in (1, 2):
            return None
        images, rest = _split_sample(batch)
        return [images, rest] if isinstance(images, Tensor) and images.ndim == 4 else None


def _split_sample(sample: Any) -> tuple[Any, dict[str, Any]]:
    """Return the image of a sample, or the images of a batch, and the rest."""
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"], {name: value for name, value in sample.items() if name != "image"}
    if isinstance(sample, tuple | list) and len(sample) in (1, 2):
        return sample[0], dict(zip(("label",), sample[1:], strict=False))
    raise TypeError(
        f"the base dataset returns {type(sample).__name__} as a sample: return (image, label), (image,), or "
        "a dictionary "
        'with "image"'
    )
