"""Entry points are found by reading source, and their workload is made the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.training.workload.data import make_training_data
from chirp_migrate.training.workload.entry_points import WorkloadSizes, find_entry_points

BACKEND = Path(__file__).resolve().parents[2] / "fixtures" / "backend"


def test_finds_every_documented_entry_point_of_the_fixture_backend() -> None:
    labels = {entry.label for entry in find_entry_points(BACKEND).entry_points}

    assert labels >= {
        "training_engine.TrainingEngine.run_single_fold_predefined",
        "training_engine.TrainingEngine.run_single_fold_stratified",
        "training_engine.TrainingEngine.run_cross_validation",
        "training_utils.single_fold_training_with_predefined_split",
        "training_utils.fast_single_fold_training_with_predefined_split",
        "training_utils.fast_single_fold_training_with_augmentation",
        "cross_validation.k_fold_cross_validation",
        "cross_validation.k_fold_cross_validation_with_predefined_folds",
        "util_backup.k_fold_cross_validation",
        "util_backup.k_fold_cross_validation_with_predefined_folds",
        "util_backup.single_fold_training_with_predefined_split",
        "util_backup.fast_single_fold_training_with_predefined_split",
        "training_core.single_fold_training",
        "training_core.cross_val_training",
    }
    assert find_entry_points(BACKEND).model == "utils.models:BirdCNN"


def test_functions_without_the_documented_parameters_are_left_out_and_named(
    write_backend: Callable[..., Path],
) -> None:
    name = "single_fold_training_with_predefined_split"
    root = write_backend("tree", (f"{name}(dataset,", f"{name}(stuff,"))

    found = find_entry_points(root)

    assert [entry.name for entry in found.entry_points] == ["fast_single_fold_training_with_augmentation"]
    assert any(name in reason for reason in found.left_out)
    assert found.model == "utils.models:TinyCNN"


def test_source_is_never_imported(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree", ("import random", "raise RuntimeError('imported')"))
    assert find_entry_points(root).entry_points


@pytest.mark.parametrize("missing, sentence", [("utils", "no utils/ folder"), ("training_utils.py", "no entry point"),
                                               ("models.py", "no model found")])  # fmt: skip
def test_what_is_missing_is_said(write_backend: Callable[..., Path], missing: str, sentence: str) -> None:
    root = write_backend("tree")
    (root / "utils").rename(root / "lib") if missing == "utils" else (root / "utils" / missing).unlink()
    with pytest.raises(NoTrainingFound, match=sentence):
        find_entry_points(root)


def test_data_repeat_and_leave_global_random_state_alone() -> None:
    sizes = WorkloadSizes(samples=50, shape=(1, 8, 10), folds=2)
    state = torch.get_rng_state()
    first, second = make_training_data(sizes), make_training_data(sizes)

    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.features, second.features) and torch.equal(first.labels, second.labels)
    assert first.features.min() >= 0 and first.features.max() <= 1
    assert torch.bincount(first.labels).min() >= 12


def test_every_split_covers_every_sample_once_and_every_class() -> None:
    data = make_training_data(WorkloadSizes(samples=101, shape=(1, 8, 10), folds=3))

    for train, val in [(data.train_indices, data.val_indices), *data.folds]:
        assert sorted([*train, *val]) == list(range(101))
        assert not set(data.authors[train]) & set(data.authors[val])
        assert len(np.unique(data.labels.numpy()[val])) == 4
    assert sorted(np.concatenate([val for _, val in data.folds])) == list(range(101))
