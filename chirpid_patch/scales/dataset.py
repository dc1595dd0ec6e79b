"""A dataset of images for training at several scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import Batch, WrappingDataset, fetch_batch
from chirpid_patch.datasets.samples import fetch_pair_batch, fetch_sample
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.scales.groups import group_scales, image_bytes
from chirpid_patch.scales.scaling import ScaleTo, as_float, image_tensor
from chirpid_patch.transforms.spectrograms import Transform
from chirpid_patch.transforms.symmetries import FlipsAndTurns


class MultiScaleDataset(WrappingDataset):
    """A dataset of the samples of ``base_dataset``, for training at several scales.

    A sample is a dictionary. The entry ``"label"`` is the label of the sample in the base dataset. If a sample of the
    base dataset is a dictionary, the new sample also contains the other entries of this dictionary, except ``"image"``.
    The entries with images depend on ``memory_efficient``:

    * By default, ``"base_image"`` is the image (C, H, W) of the base dataset, and ``"scales"`` is an int64 tensor with
      the S sizes in ``scales``. ``step.MultiScaleStep`` scales the base image on demand.
    * With ``memory_efficient=False``, the entries ``"image_224"`` and so on are the image at each scale, as
      floating-point tensors (C, scale, scale). This mode needs several times as much memory as the default, and exists
      only for comparisons.

    By default, 8-bit base images remain 8-bit until ``MultiScaleStep`` scales the images. An 8-bit image takes a
    quarter of the memory of a float32 image.

    Args:
        base_dataset: map-style dataset of samples ``(image, label)`` or ``(image,)``, or of dictionaries with
            ``"image"``. An image is any value that ``scaling.image_tensor`` accepts.
        scales: sizes of the square images, in pixels.
        augment: whether to mirror and turn the base image at random (``FlipsAndTurns``), or a sequence of your own
            transforms. The dataset augments the base image, so all scales of a sample have the same augmentation. The
            random values of this package's transforms do not depend on the number of workers.
        memory_efficient: whether samples contain only the base image. False: samples contain the image at every scale.
        memory_budget: number of bytes, which the dataset uses only in ``_group_scales_by_memory``; None: no budget. To
            limit the memory of the training, pass ``memory_budget`` to ``MultiScaleStep``.
        batch_size: number of samples in a batch. The dataset needs this number only for ``memory_budget``.

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
            raise ValueError(f"memory_budget must be a number of bytes above 0, not {memory_budget}")
        self.memory_efficient = memory_efficient
        self.memory_budget = memory_budget
        self.batch_size = batch_size
        #: Maps each scale to the transform that scales an image or a batch of images.
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
        """Return whether the dataset augments the base images."""
        return self._augmented.training

    def set_training(self, training: bool) -> None:
        """Switch augmentation on (True) or off (False)."""
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
        pairs = fetch_pair_batch(self._augmented, indices, key) if self.in_memory else None
        if pairs is None:
            return None
        images, rest = pairs
        scales = torch.tensor(self.scales).repeat(len(images), 1)
        return cast(Batch, {**rest, "base_image": images, "scales": scales})

    def get_scale_image(self, base_image: Any, scale: int) -> Tensor:
        """Return a base image, or a batch of base images (B, C, H, W), at ``scale``; see ``scaling.scale_images``."""
        return ScaleTo(scale)(base_image)

    def _group_scales_by_memory(self) -> list[list[int]]:
        """Divide the scales into groups, and return the groups.

        For each group, the images of a batch at all scales of the group take at most ``memory_budget`` bytes. A scale
        that needs more bytes forms a group of its own. Without a budget, each scale forms a group of its own. The
        method reads only the first base image, and assumes that all base images have its dtype and number of channels.
        """
        if self.memory_budget is None or not len(self):
            return [[scale] for scale in self.scales]
        with restore_generators_after(self.base_dataset):
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
    """A dataset that returns the samples of another dataset as pairs (image tensor, dictionary of all other values)."""

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
    """Split a sample or a batch into the image or images and a dictionary of all other values."""
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"], {name: value for name, value in sample.items() if name != "image"}
    if isinstance(sample, tuple | list) and len(sample) in (1, 2):
        return sample[0], dict(zip(("label",), sample[1:], strict=False))
    raise TypeError(
        f"the base dataset returns a {type(sample).__name__} as a sample: return (image, label), (image,), or "
        'a dictionary with "image"'
    )
