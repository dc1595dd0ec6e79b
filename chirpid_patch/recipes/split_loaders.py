"""Training, validation and test loaders in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Subset

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loader_options import CommonArguments
from chirpid_patch.recipes.image_folder import ImageFolderDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("chirpid_patch")

Loaders = tuple["DataLoader[Any]", "DataLoader[Any]", "DataLoader[Any]"]
_VALIDATION_FOLDERS = ("val", "valid", "validation")


def create_dataloaders(
    data_root: str | Path | Any,
    batch_size: int = 32,
    img_size: int | None = 224,
    num_workers: int = 0,
    val_split: float = 0.1,
    *,
    test_split: float = 0.1,
    seed: int = 42,
    channels: int = 3,
    transform: Callable[[torch.Tensor], Any] | None = None,
    **loader_options: Unpack[CommonArguments],
) -> Loaders:
    """Build loaders for training (shuffled), validation and test (every sample, in order).

    Every sample belongs to exactly one loader. ``loader.dataset`` is a ``torch.utils.data.Subset`` in all three, so
    ``train_loader.dataset.dataset`` is the complete base dataset. To keep validation samples out of the training, wrap
    ``train_loader.dataset`` instead. A split without samples has a loader without batches.

    Args:
        data_root: one of these sources of samples:

            * a folder with ``train/CLASS/…`` and ``test/CLASS/…``: ``val_split`` of the training folder is held out,
              or, if there is also a folder ``val``, its images instead;
            * a folder of class folders: ``test_split`` and ``val_split`` of it are held out;
            * a dataset (indexable, with a length): ``test_split`` and ``val_split`` of it are held out.
        batch_size: samples in a batch.
        img_size: width and height in pixels of images in folders, see ``ImageFolderDataset``.
        channels: number of channels of images in folders, see ``ImageFolderDataset``.
        transform: transform of images in folders, see ``ImageFolderDataset``; None: no transform.
        num_workers: largest number of worker processes of each loader; the factory may use fewer, or none. It starts
            none by default, except with ``tune=True``.
        val_split: share of the training samples held out for validation, 0 (none, for inference) to below 1.
        test_split: share of all samples held out for testing, if there is no test folder or dataset.
        seed: seed of the split; the function uses no global random generator.
        **loader_options: further arguments for ``OptimalDataLoaderFactory``, for all three loaders; ``drop_last`` and
            ``generator`` apply to training only.

    Raises:
        FileNotFoundError: a folder is missing or has no images.
        ValueError: a share is outside 0..1, or there are no samples, or no samples to train on.
        TypeError: ``data_root`` is none of the above.
    """
    for name, share in (("val_split", val_split), ("test_split", test_split)):
        if not 0 <= share < 1:
            raise ValueError(f"{name} is a share of the samples, from 0 up to below 1, not {share}")

    def folder(path: Path, classes: list[str] | None = None) -> ImageFolderDataset:
        return ImageFolderDataset(path, img_size, channels=channels, classes=classes, transform=transform)

    if isinstance(data_root, str | Path):
        train, validation, test = _of_folder(Path(data_root), folder, val_split, test_split, seed)
    elif hasattr(data_root, "__getitem__") and hasattr(data_root, "__len__"):
        train, validation, test = _split_randomly(data_root, (val_split, test_split), seed)
    else:
        raise TypeError(f"data_root must be a folder or a dataset with a length, not {type(data_root).__name__}")
    return _loaders(train, validation, test, batch_size, {"num_workers": num_workers, **loader_options})


def _loaders(
    train: Subset[Any], validation: Subset[Any], test: Subset[Any], batch_size: int, options: dict[str, Any]
) -> Loaders:
    training = options if len(train) else {**options, "shuffle": False}
    evaluation = {name: given for name, given in options.items() if name not in ("drop_last", "generator")}
    logger.info("%d samples for training, %d for validation, %d for test", len(train), len(validation), len(test))
    return (
        OptimalDataLoaderFactory.create_training_loader(train, batch_size, **training),
        OptimalDataLoaderFactory.create_validation_loader(validation, batch_size, **evaluation),
        OptimalDataLoaderFactory.create_test_loader(test, batch_size, **evaluation),
    )


def _of_folder(
    root: Path, read: Callable[..., ImageFolderDataset], val_split: float, test_split: float, seed: int
) -> tuple[Subset[Any], Subset[Any], Subset[Any]]:
    """Return the splits that ``root`` contains as folders, or that are drawn from its images."""
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}: data_root must have train/CLASS/… and test/CLASS/…")
    train_folder, test_folder = root / "train", root / "test"
    if not train_folder.is_dir() and not test_folder.is_dir():
        train, validation, test = _split_randomly(read(root), (val_split, test_split), seed)
        return train, validation, test
    for folder in (train_folder, test_folder):
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}: data_root must have both train and test")
    base = read(train_folder)
    own = next((root / name for name in _VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if own is None:
        train, validation = _split_randomly(base, (val_split,), seed)
    else:
        train, validation = _everything(base), _everything(read(own, base.classes))
    return train, validation, _everything(read(test_folder, base.classes))


def _everything(dataset: Any) -> Subset[Any]:
    return Subset(dataset, range(len(dataset)))


def _split_randomly(dataset: Any, shares: tuple[float, ...], seed: int) -> list[Subset[Any]]:
    """Return the rest of ``dataset`` for training, and a random part of at least one sample for each share."""
    count = len(dataset)
    if not count:
        raise ValueError("the dataset has no samples")
    sizes = [max(1, int(count * share)) if share else 0 for share in shares]
    left = count - sum(sizes)
    if left < 1:
        raise ValueError(
            f"no samples are left to train on: {' and '.join(map(str, sizes))} of {count} are held out: "
            "lower val_split or test_split"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    bounds = [0, left]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return [Subset(dataset, sorted(order[start:stop])) for start, stop in pairwise(bounds)]
