"""Training on the user's own samples: the same ones in every process, with splits that can be trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from chirp_migrate.training.workload.arrays import choose_balanced_samples, sizes_from_data_file
from chirp_migrate.training.workload.data import make_training_data
from chirp_migrate.training.workload.entry_points import WorkloadSizes


def test_a_folder_of_arrays_with_text_labels_and_no_authors(tmp_path: Path) -> None:
    features = np.arange(64 * 8 * 9, dtype=np.uint8).reshape(64, 8, 9)
    labels = np.array(["wren", "robin"])[np.arange(64) % 2]
    np.save(tmp_path / "X.npy", features)
    np.save(tmp_path / "y.npy", labels)
    sizes = sizes_from_data_file(WorkloadSizes(samples=1000), tmp_path)

    data = make_training_data(sizes)

    assert (sizes.samples, sizes.classes) == (64, 2)
    assert data.features.dtype == torch.float32 and data.features.shape == (64, 1, 8, 9)
    assert torch.equal(data.features[:, 0], torch.from_numpy(features).float()), "values as they are stored"
    assert data.labels.tolist() == [1, 0] * 32
    for train, val in [(data.train_indices, data.val_indices), *data.folds]:
        assert sorted([*train, *val]) == list(range(64))
        assert set(data.labels.numpy()[val]) == {0, 1} and not set(data.authors[train]) & set(data.authors[val])


def test_own_authors_are_kept_apart_and_few_samples_are_of_every_class(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(4), 50)
    authors = np.arange(200) % 10
    np.savez(tmp_path / "own.npz", features=np.zeros((200, 1, 4, 4)), labels=labels, authors=authors)
    sizes = sizes_from_data_file(WorkloadSizes(samples=200), tmp_path / "own.npz")

    everything, warm_up = make_training_data(sizes), make_training_data(sizes.for_warm_up())

    assert everything.authors.tolist() == authors.tolist()
    assert len(warm_up.labels) == 32 and np.bincount(warm_up.labels.numpy()).tolist() == [8] * 4


def test_samples_are_chosen_evenly_over_classes() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    assert choose_balanced_samples(labels, 5).tolist() == [0, 1, 4, 5, 6]
    assert choose_balanced_samples(labels, 100).tolist() == list(range(7))
