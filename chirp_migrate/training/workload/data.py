"""Create the data of a training: synthetic spectrograms, or the user's arrays. Every process gets equal data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from chirp_migrate.training.workload.arrays import choose_balanced_samples, rank_within_class, read_arrays
from chirp_migrate.training.workload.entry_points import WorkloadSizes

_AUTHORS_PER_FOLD = 4
_VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class TrainingData:
    """A dataset, and its splits into training and validation samples.

    Attributes:
        features: spectrograms, float32 of shape (N, C, F, T); synthetic values are in [0, 1].
        labels: class of each sample, int64 of shape (N,), from 0. Synthetic classes have about equally many samples.
        authors: number of the person who recorded each sample, int64 of shape (N,), from 0. The numbers are artificial
            if the user's arrays have too few authors or none. In each split, all samples of an author are training
            samples, or all are validation samples. Each synthetic author has samples of many classes, so that training
            and validation have the same classes.
        train_indices: indices of the training samples in a training without cross-validation, int64.
        val_indices: indices of the validation samples in such a training, int64. The authors of these samples have no
            training samples.
        folds: for each fold of a cross-validation, the indices of its training samples and of its validation samples,
            int64. Every sample is a validation sample in exactly one fold.
    """

    features: torch.Tensor
    labels: torch.Tensor
    authors: NDArray[np.int64]
    train_indices: NDArray[np.int64]
    val_indices: NDArray[np.int64]
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]]

    def dataset(self) -> TensorDataset:
        """Return the features and labels as a ``TensorDataset``."""
        return TensorDataset(self.features, self.labels)


def make_training_data(sizes: WorkloadSizes) -> TrainingData:
    """Return the user's arrays at ``sizes.data``, or synthetic spectrograms if ``sizes.data`` is None.

    Each class of synthetic spectrograms has a different loud frequency band, so that a model can learn the classes. Two
    calls with equal ``sizes`` return equal data. The function does not change the state of the global random
    generators.

    Raises:
        UsageProblem: the user's arrays cannot be read.
    """
    return _synthetic(sizes) if sizes.data is None else _load_samples(sizes, Path(sizes.data))


def _synthetic(sizes: WorkloadSizes) -> TrainingData:
    generator = torch.Generator().manual_seed(sizes.seed)
    number = torch.arange(sizes.samples)
    # Consecutive samples have different authors, so that each author has samples of many classes.
    author_count = _AUTHORS_PER_FOLD * sizes.folds
    authors = number % author_count
    labels = (number // author_count + authors) % sizes.classes
    shuffle = torch.randperm(sizes.samples, generator=generator)
    authors, labels = authors[shuffle], labels[shuffle]

    features = torch.empty((sizes.samples, *sizes.shape))
    features.uniform_(0.0, 0.7, generator=generator)
    bins = sizes.shape[1]
    for index, label in enumerate(labels.tolist()):
        low, high = bins * label // sizes.classes, max(bins * (label + 1) // sizes.classes, 1)
        features[index, :, low:high] += 0.3

    return _split(features, labels, authors.numpy(), sizes.folds)


def _load_samples(sizes: WorkloadSizes, path: Path) -> TrainingData:
    """Return ``sizes.samples`` of the user's samples. All classes have about equally many of these samples."""
    stored = read_arrays(path)
    labels = np.unique(stored.labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
    chosen = choose_balanced_samples(labels, sizes.samples)
    features = torch.from_numpy(np.ascontiguousarray(stored.features[chosen], dtype=np.float32))
    labels = labels[chosen]
    if stored.authors is not None:
        authors = np.unique(stored.authors[chosen], return_inverse=True)[1].reshape(-1).astype(np.int64)
    if stored.authors is None or authors.max() + 1 < 2 * sizes.folds:
        # With too few authors, the samples cannot be split by author: assign the samples to artificial authors.
        authors = rank_within_class(labels) % (_AUTHORS_PER_FOLD * sizes.folds)
    return _split(features.reshape(-1, *stored.shape), torch.from_numpy(labels), authors, sizes.folds)


def _split(features: torch.Tensor, labels: torch.Tensor, authors: NDArray[np.int64], fold_count: int) -> TrainingData:
    """Split the samples by author: all samples of an author are training samples, or all are validation samples."""
    validates = authors < max(1, round((int(authors.max()) + 1) * _VALIDATION_SHARE))
    folds = [
        (np.flatnonzero(authors % fold_count != fold), np.flatnonzero(authors % fold_count == fold))
        for fold in range(fold_count)
    ]
    return TrainingData(features, labels, authors, np.flatnonzero(~validates), np.flatnonzero(validates), folds)
