"""Read the user's own samples, which are NumPy arrays in one ``.npz`` file or in a folder of ``.npy`` files.

The module refuses arrays of Python objects. To read such arrays, NumPy must unpickle objects, which can run code.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.workload.entry_points import WorkloadSizes

_FEATURES = ("features", "spectrograms", "X", "x")
_LABELS = ("labels", "targets", "y")
_AUTHORS = ("authors", "groups")


@dataclass(frozen=True)
class UserArrays:
    """The user's own samples as arrays.

    Attributes:
        features: array of real numbers with the shape (N, C, F, T) or (N, F, T); possibly a memory map of the user's
            file.
        labels: array of numbers or text with the shape (N,); each distinct value is a class.
        authors: array of numbers or text with the shape (N,), which shows who recorded each sample; None if the user's
            file has no authors.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    authors: NDArray[Any] | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of a sample as (channels, frequency bins, time frames)."""
        channels, bins, frames = (1, *self.features.shape[1:])[-3:]
        return channels, bins, frames


def read_arrays(path: Path) -> UserArrays:
    """Read the arrays ``features``, ``labels`` and, if present, ``authors``.

    The page docs/settings.md lists other names that these arrays may have.

    Args:
        path: an ``.npz`` file, or a folder of ``.npy`` files.

    Raises:
        UsageProblem: an array is missing or cannot be read without unpickling, the shapes do not fit together, or all
            labels are equal.
    """
    try:
        features, labels, authors = _load(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageProblem(
            f"{path} cannot be read as NumPy arrays ({why}): --data takes arrays of numbers or text."
        ) from None
    if features is None or labels is None:
        raise UsageProblem(
            f"{path} lacks {'features' if features is None else 'labels'}: --data takes an .npz file with arrays "
            "named features, labels and (optional) authors, or a folder with features.npy, labels.npy and (optional) "
            "authors.npy."
        )
    if features.ndim not in (3, 4) or features.dtype.kind not in "fiub":
        raise UsageProblem(
            f"the features in {path} are {features.dtype} of shape {features.shape}: --data needs real numbers "
            "of shape (samples, channels, bins, frames) or (samples, bins, frames)."
        )
    for name, array in (("labels", labels), ("authors", authors)):
        if array is not None and array.shape != features.shape[:1]:
            raise UsageProblem(
                f"the {name} in {path} have shape {array.shape} for {len(features)} samples: pass one value for each "
                "sample."
            )
    if len(np.unique(labels)) < 2:
        raise UsageProblem(f"all labels in {path} are the same: the samples must have at least two classes.")
    return UserArrays(features, labels, authors)


def sizes_from_data_file(sizes: WorkloadSizes, path: Path) -> WorkloadSizes:
    """Return ``sizes`` with the sample shape and the numbers of classes and samples of the user's data.

    If the data has more samples than ``sizes.samples``, the training uses only ``sizes.samples`` samples.

    Args:
        sizes: the sizes of the training. The training uses at most ``samples`` samples. The function ignores ``shape``
            and ``classes``, because these sizes depend on the data.
        path: an ``.npz`` file, or a folder of ``.npy`` files.

    Raises:
        UsageProblem: the file cannot be used; see :func:`read_arrays`.
    """
    stored = read_arrays(path)
    classes = len(np.unique(stored.labels))
    samples = min(sizes.samples, len(stored.labels))
    return replace(sizes, samples=samples, shape=stored.shape, classes=classes, data=str(path.resolve()))


def choose_balanced_samples(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the positions of ``count`` samples in ascending order: the first samples of each class.

    If possible, the result contains equally many samples of all classes.
    """
    return np.sort(np.argsort(rank_within_class(labels), kind="stable")[:count])


def rank_within_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an array of shape (N,): for each sample, the number of earlier samples with the same class."""
    earlier = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        earlier[positions] = np.arange(len(positions))
    return earlier


def _load(path: Path) -> tuple[NDArray[Any] | None, ...]:
    wanted = (_FEATURES, _LABELS, _AUTHORS)
    if path.is_dir():
        candidates = [[path / f"{name}.npy" for name in names] for names in wanted]
        files = [next((file for file in some if file.is_file()), None) for some in candidates]
        return tuple(None if file is None else np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an .npz file")
    with np.load(path, allow_pickle=False) as content:
        names_found = [next((name for name in names if name in content.files), None) for names in wanted]
        return tuple(None if name is None else content[name] for name in names_found)
