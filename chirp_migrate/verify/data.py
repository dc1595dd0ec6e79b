"""Synthetic spectrograms with a learnable signal, made the same in every process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from chirp_migrate.verify.workload import Sizes

__all__ = ["TrainingData", "make_training_data"]

_AUTHORS_PER_FOLD = 4
_VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class TrainingData:
    """A data set with the splits that the entry points ask for.

    Attributes:
        features: float32 (N, C, F, T) in [0, 1].
        labels: int64 (N,); every class as often as every other, give or take one.
        authors: int64 (N,); every author has samples of every class, so that splits by author exist.
        train_indices, val_indices: int64, disjoint, together every sample; split by author.
        folds: (train_indices, val_indices) for each fold; every sample validates once.
    """

    features: torch.Tensor
    labels: torch.Tensor
    authors: NDArray[np.int64]
    train_indices: NDArray[np.int64]
    val_indices: NDArray[np.int64]
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]]

    def dataset(self) -> TensorDataset:
        """The in-memory data set that the backend trains on."""
        return TensorDataset(self.features, self.labels)


def make_training_data(sizes: Sizes) -> TrainingData:
    """Make grey-scale spectrograms in which each class has a frequency band that is louder than the background.

    The same sizes give the same bits. Only generators made here are used: global random state is left alone.
    """
    generator = torch.Generator().manual_seed(sizes.seed)
    number = torch.arange(sizes.samples)
    # Authors alternate fastest, so that each one meets every class.
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

    author_array = authors.numpy()
    validates = author_array < max(1, round(author_count * _VALIDATION_SHARE))
    folds = [
        (np.flatnonzero(author_array % sizes.folds != fold), np.flatnonzero(author_array % sizes.folds == fold))
        for fold in range(sizes.folds)
    ]
    return TrainingData(features, labels, author_array, np.flatnonzero(~validates), np.flatnonzero(validates), folds)
