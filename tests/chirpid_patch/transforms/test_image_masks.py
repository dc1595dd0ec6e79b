"""Augmentation through 8-bit images: batches have the values that the class's own code gives, one image a sample."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from originals import same
from PIL import Image
from test_guarded_masks import F, N, T, differs
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from chirpid_patch import BatchedDataLoader, SpecAugment, augments_images, augments_samples, masks_images
from chirpid_patch.declaration import batched_object_for
from chirpid_patch.transforms.images import ImageMasks


@masks_images(mask_short_axes=False)
class Masks:
    """As CHP003 leaves it."""

    def __init__(self, freq: Any = 0, time: Any = 0, mask_value: Any = 0, p: Any = 1.0) -> None:
        self.freq_mask_param = freq
        self.time_mask_param = time
        self.num_freq_masks = 1
        self.num_time_masks = 1
        self.mask_value = mask_value
        self.p = p

    def __call__(self, image: Any) -> Any:
        if random.random() > self.p:
            return image
        pixels = np.array(image)
        height, width = pixels.shape
        for _ in range(self.num_freq_masks):
            if height > self.freq_mask_param:
                f = random.randint(0, min(self.freq_mask_param, height))
                start = random.randint(0, height - f)
                pixels[start : start + f, :] = self.mask_value
        for _ in range(self.num_time_masks):
            if width > self.time_mask_param:
                t = random.randint(0, min(self.time_mask_param, width))
                start = random.randint(0, width - t)
                pixels[:, start : start + t] = self.mask_value
        return Image.fromarray(pixels)


class Falsy(Masks):
    def __len__(self) -> int:
        return 0


class Inverting(Masks):
    def __call__(self, image: Any) -> Any:
        return Image.fromarray(255 - np.array(image))


class Plain(Dataset[Any]):
    """Undeclared: what the declared ones are compared with."""

    eps = 0.0
    divisor = 1.0

    def __init__(self, base: Any, augmenter: Any, training: Any = True) -> None:
        self.base = base
        self.augmenter = augmenter
        self.training = training

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.base[index]
        if self.training and self.augmenter is not None and isinstance(x, torch.Tensor):
            array = x.squeeze().numpy() if x.dim() > 2 else x.numpy()
            span = array.max() - array.min()
            if self.eps:
                span = span + self.eps
            array = ((array - array.min()) / span * 255).astype(np.uint8)
            image = self.augmenter(Image.fromarray(array))
            x = torch.from_numpy(np.array(image)).float().unsqueeze(0)
            if self.divisor != 1.0:
                x = x / self.divisor
        return x, y


@augments_images(dataset="base", augmenter="augmenter", training="training")
class Imaged(Plain):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


@augments_images(dataset="base", augmenter="augmenter", training="training", eps=1e-8, divisor=255.0)
class Scaled(Plain):
    eps = 1e-8
    divisor = 255.0

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


def samples(scale: float = 1.0, shape: tuple[int, ...] = (1, F, T), count: int = 60) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(count, *shape, generator=generator) * scale, torch.arange(count))


def batches(loader: Any) -> list[Any]:
    random.seed(5)
    torch.manual_seed(5)
    with np.errstate(all="ignore"):
        return [list(batch) for batch in loader]


@pytest.mark.parametrize("kind", [Imaged, Scaled])
@pytest.mark.parametrize("augmenter", [Masks(p=0.0), Masks(p=1.0), Masks(mask_value=7)], ids=["never", "none", "empty"])
@pytest.mark.parametrize("scale", [1e-40, 1e-8, 1.0, 3e3, 1e30])
@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 17, 33), (1, 64, 128)], ids=str)
def test_equal_masks_give_equal_bits(kind: Any, augmenter: Any, scale: float, shape: tuple[int, ...]) -> None:
    dataset = kind(samples(scale, shape, count=20), augmenter)
    assert batched_object_for(dataset) is not dataset
    assert same(batches(BatchedDataLoader(dataset, 7)), batches(DataLoader(dataset, 7)))
    below = Subset(dataset, [3, 1, -1])
    assert same(batches(BatchedDataLoader(below, 2)), batches(DataLoader(below, 2)))


def test_all_levels_come_back_as_they_were_divided() -> None:
    levels = torch.arange(256, dtype=torch.float32).reshape(1, 1, 16, 16)
    found = ImageMasks(SpecAugment(0, 0), divisor=255.0).transform_batch(levels, np.zeros(1, dtype=np.uint64))
    assert torch.equal(found, levels / 255.0)
    assert np.array_equal(found.numpy(), levels.numpy() / 255.0)


#: Each axis, width and probability occurs with another of the others.
PAIRS = {(-1, -3, 0.7), (-2, -1, 0.7), (-2, -3, 1.0), (-1, 0, 1.0)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axis", "over", "p"),
    [
        pytest.param(*one, marks=() if one in PAIRS else pytest.mark.exhaustive)
        for one in itertools.product((-1, -2), (-3, -1, 0), (0.7, 1.0))
    ],
)
def test_masks_are_distributed_as_in_single_images(axis: int, over: int, p: float) -> None:
    param = (1, F, T)[axis] + over
    augmenter = Masks(time=param, p=p) if axis == -1 else Masks(freq=param, p=p)
    x = samples(count=1).tensors[0].expand(N, 1, F, T).contiguous()
    dataset = Imaged(TensorDataset(x, torch.arange(N)), augmenter)
    (old, _), (new, _) = (batches(kind(dataset, N))[0] for kind in (DataLoader, BatchedDataLoader))
    shown = batches(DataLoader(Imaged(TensorDataset(x, torch.arange(N)), Masks(p=0.0)), 1))[0][0]
    hidden = [((one == shown) | (shown == 0)).float() for one in (old, new)]
    assert bool((hidden[0] == 0).any()) == bool((hidden[1] == 0).any()) == (over < 0)
    assert not differs(*(one.transpose(-1, -2) if axis == -2 else one for one in _whole(hidden, shown, axis)))


def _whole(shown: list[torch.Tensor], image: torch.Tensor, axis: int) -> list[torch.Tensor]:
    """Samples of ones in which what is hidden is 0 across; the darkest place of an image tells nothing."""
    across = -2 if axis == -1 else -1
    return [(one == 1).all(dim=across, keepdim=True).float().expand_as(one).contiguous() for one in shown]


class Strange(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.arange(6.0).reshape(1, 2, 3) + index, index


def _with(place: int, value: float, count: int = 6) -> TensorDataset:
    dataset = samples(count=count)
    dataset.tensors[0][place] = value
    return dataset


@pytest.mark.parametrize(
    "dataset",
    [
        Imaged(_with(2, 0.5), Masks()),
        Scaled(_with(2, 0.5), Masks()),
        Scaled(samples(3e38), Masks()),
        Imaged(samples(shape=(F, T)), Masks()),
        Imaged(samples(shape=(1, 1, T)), Masks()),
        Imaged(samples(shape=(1, F, 1)), Masks()),
        Imaged(samples(shape=(3, F, T)), Masks()),
        Imaged(TensorDataset(samples().tensors[0].double(), torch.arange(60)), Masks()),
        Imaged(TensorDataset(torch.arange(24).reshape(2, 1, 3, 4), torch.arange(2)), Masks()),
        Imaged(TensorDataset(samples().tensors[0]), Masks()),
        Imaged(Strange(), Masks()),
        Imaged(samples(), None),
        Imaged(samples(), Inverting()),
        Imaged(samples(), Masks(mask_value=256)),
        Imaged(samples(), Masks(mask_value=None)),
        Imaged(samples(), Masks(p="a")),
        Imaged(samples(), lambda image: image),
        Imaged(samples(), Falsy()),
        Imaged(samples(), Masks(), training=1),
        Imaged(_with(0, float("nan")), Masks()),
        Imaged(_with(0, float("inf")), Masks()),
    ],
    ids=lambda dataset: "",
)
def test_anything_else_is_read_by_its_own_code(dataset: Any) -> None:
    found: list[Any] = []
    for kind in (DataLoader, BatchedDataLoader):
        try:
            found.append(batches(kind(dataset, 3)))
        except Exception as error:
            found.append([type(error), str(error)])
    assert same(*found)


def test_switched_off_samples_are_as_they_are() -> None:
    dataset = Imaged(samples(), Masks(3, 3), training=False)
    assert batched_object_for(dataset).in_memory and same(
        batches(BatchedDataLoader(dataset, 9)), batches(DataLoader(samples(), 9))
    )
    dataset.training = True
    assert not same(batches(BatchedDataLoader(dataset, 9)), batches(DataLoader(samples(), 9)))


@augments_samples(dataset="base", transforms={"augmenter": None})
class OnTensors(Dataset[Any]):
    def __init__(self, base: Any, augmenter: Any) -> None:
        self.base = base
        self.augmenter = augmenter

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.base[index]
        return self.augmenter(x), y


def test_a_mask_of_images_is_no_transform_of_tensors() -> None:
    dataset = OnTensors(samples(), Masks(2, 2))
    assert batched_object_for(dataset) is dataset and batched_object_for(dataset.augmenter) is dataset.augmenter


def test_it_is_picklable() -> None:
    dataset = Imaged(samples(), Masks(2, 2, mask_value=9, p=0.5))
    expected = batches(BatchedDataLoader(dataset, 9))
    for one in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert same(batches(BatchedDataLoader(one, 9)), expected)
    assert same(batches(BatchedDataLoader(dataset, 9, num_workers=2)), expected)
    assert isinstance(pickle.loads(pickle.dumps(batched_object_for(dataset))).transforms[0], ImageMasks)
