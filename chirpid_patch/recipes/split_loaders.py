"""A function that splits samples and builds loaders for training, validation and test."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Subset

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loader_arguments import DatasetIndependentArguments
from chirpid_patch.recipes.image_folder import ImageFolderDataset
from chirpid_patch.torch_private import DataLoader

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
    **loader_options: Unpack[DatasetIndependentArguments],
) -> Loaders:
    """Split samples, and build a shuffled loader for training and ordered loaders for validation and test.

    Every sample belongs to exactly one loader. The dataset of each loader is a ``torch.utils.data.Subset``. To augment
    only the training samples, wrap ``train_loader.dataset`` in a dataset that augments, and build a new loader for this
    dataset. If validation or test has no samples, the loader for this part yields no batches.

    Args:
        data_root: one of these sources of samples:

            * A folder with ``train/CLASS/…`` and ``test/CLASS/…``. If the folder also contains ``val/CLASS/…``, these
              images are the validation samples. The name of this subfolder may also be ``valid`` or ``validation``.
              Without such a subfolder, the share ``val_split`` of the images in ``train`` is for validation.
            * A folder with a folder for each class. The shares ``test_split`` and ``val_split`` of all images are for
              test and validation.
            * A dataset that can be indexed and has a length. The shares ``test_split`` and ``val_split`` of its samples
              are for test and validation.
        batch_size: number of samples in a batch.
        img_size: width and height in pixels of the scaled images, for folders; see ``ImageFolderDataset``.
        num_workers: largest number of worker processes of each loader. A loader may start fewer workers or none.
        val_split: share of samples for validation, from 0 (no validation) to below 1.
        test_split: share of samples for the test, from 0 to below 1. If the folder ``test`` exists, this share has no
            effect.
        seed: seed of the random split. The split uses no global random generator.
        channels: number of channels of images in folders; see ``ImageFolderDataset``.
        transform: transform of images in folders; see ``ImageFolderDataset``. None: no transform.
        **loader_options: other arguments of ``create_loader``. All three loaders use these arguments, except
            ``drop_last`` and ``generator``, which only the training loader uses.

    Raises:
        FileNotFoundError: a folder is missing or contains no images.
        ValueError: a share is out of range, there are no samples, or no samples are left for training.
        TypeError: ``data_root`` is neither a path nor a dataset that can be indexed and has a length.
    """
    for name, share in (("val_split", val_split), ("test_split", test_split)):
        if not 0 <= share < 1:
            raise ValueError(f"{name} must be a share of the samples, from 0 to below 1, not {share}")

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
    """Return the training, validation and test samples of a folder.

    If ``root`` contains the folders train and test, these folders define the split. Otherwise the split is random.
    """
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
    """Split ``dataset`` at random.

    The first item of the result is the subset for training. The other items are the subsets for ``shares``. For a share
    above 0, the subset has at least one sample.
    """
    count = len(dataset)
    if not count:
        raise ValueError("the dataset has no samples")
    sizes = [max(1, int(count * share)) if share else 0 for share in shares]
    left = count - sum(sizes)
    if left < 1:
        raise ValueError(
            f"no samples are left for training, because {' and '.join(map(str, sizes))} of {count} are for validation "
            "or test: lower val_split or test_split"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    bounds = [0, left]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return [Subset(dataset, sorted(order[start:stop])) for start, stop in pairwise(bounds)]
