"""The fixture backend: every entry point trains, repeats, has its documented habits, and trains the same migrated."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
BACKEND = HERE.parents[1] / "fixtures" / "backend"

EPOCHS = 2
VALIDATION_SAMPLES = {"single": {10}, "two folds": {20, 30}, "stratified folds": {25}}


def run_in_backend(script: str, out: Path, *arguments: str, backend: Path = BACKEND) -> dict[str, Any]:
    """Run a script beside this file in a fresh process in a backend's root; returns what it wrote."""
    process = subprocess.run(
        [sys.executable, str(HERE / script), str(out), *arguments],
        cwd=backend,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    report = json.loads(out.read_text(encoding="utf-8"))
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of every entry point."""
    return run_in_backend("drive_backend.py", tmp_path_factory.mktemp("trained") / "report.json")


@pytest.fixture(scope="module")
def trained_migrated(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of the migrated backend."""
    return run_in_backend("drive_backend.py", tmp_path_factory.mktemp("migrated") / "report.json", backend=migrated)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What inspect_backend.py reports."""
    return run_in_backend("inspect_backend.py", tmp_path_factory.mktemp("facts") / "report.json")


def both(name: str) -> list[str]:
    return [f"{name}.plain", f"{name}.standardized"]


SINGLE = "single_fold_training_with_predefined_split"
FAST = "fast_single_fold_training_with_predefined_split"
AUGMENTED = "fast_single_fold_training_with_augmentation"
K_FOLD = "k_fold_cross_validation"
PREDEFINED_FOLDS = "k_fold_cross_validation_with_predefined_folds"
ENTRY_POINTS = [
    *both("training_engine.predefined"),
    *both("training_engine.stratified"),
    *both("training_engine.cross_validation"),
    *(n for f in (SINGLE, FAST, AUGMENTED) for n in both(f"training_utils.{f}")),
    *(n for f in (K_FOLD, PREDEFINED_FOLDS) for n in both(f"cross_validation.{f}")),
    *(n for f in (SINGLE, FAST, AUGMENTED, K_FOLD, PREDEFINED_FOLDS) for n in both(f"util_backup.{f}")),
    "util_backup.single_fold_training_with_augmentation",
    *both("training_core.single_fold_training"),
    *both("training_core.cross_val_training"),
]


def test_no_entry_point_is_left_out(trained: dict[str, Any]) -> None:
    assert set(trained) == set(ENTRY_POINTS)


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_entry_point_returns_a_finite_history_of_every_epoch(trained: dict[str, Any], name: str) -> None:
    folds = trained[name]["folds"]
    assert len(folds) == (3 if "cross_val" in name else 1)  # two folds and the better one again
    for fold in folds:
        for key in ("train_losses", "val_losses", "train_accuracies", "val_accuracies"):
            assert len(fold[key]) == EPOCHS
            assert all(math.isfinite(value) for value in fold[key])
        assert all(0.0 <= value <= 1.0 for value in fold["train_accuracies"] + fold["val_accuracies"])


@pytest.mark.parametrize("name", [n for n in ENTRY_POINTS if not n.startswith("training_core")])
def test_validation_sees_every_sample(trained: dict[str, Any], name: str) -> None:
    kind = "single"
    if name.endswith((f".{K_FOLD}.plain", f".{K_FOLD}.standardized")):
        kind = "stratified folds"
    elif "cross_validation" in name:
        kind = "two folds"
    assert {fold["confusion_total"] for fold in trained[name]["folds"]} == VALIDATION_SAMPLES[kind]


def test_old_and_new_forms_of_the_same_training_agree_to_the_last_bit(trained: dict[str, Any]) -> None:
    def history(name: str) -> Any:
        return trained[name]["folds"]

    assert history(f"training_utils.{SINGLE}.plain") == history(f"util_backup.{SINGLE}.plain")
    assert history(f"training_utils.{FAST}.plain") == history(f"util_backup.{FAST}.plain")
    assert history(f"training_utils.{SINGLE}.standardized") == history(f"util_backup.{SINGLE}.standardized")


@pytest.mark.exhaustive  # the migrated training is the same in a fresh process, too
def test_training_repeats_to_the_last_bit_in_a_fresh_process(trained: dict[str, Any], tmp_path: Path) -> None:
    names = [
        "training_engine.predefined.standardized",  # worker processes
        f"util_backup.{K_FOLD}.plain",  # persistent workers
        f"training_utils.{AUGMENTED}.standardized",  # masks and noise
        f"util_backup.{AUGMENTED}.plain",
        "training_core.single_fold_training.plain",  # dropout
    ]
    again = run_in_backend("drive_backend.py", tmp_path / "report.json", *names)
    assert {name: again[name]["fingerprint"] for name in names} == {
        name: trained[name]["fingerprint"] for name in names
    }


def test_migrated_training_without_augmentation_is_identical_to_the_last_bit(
    trained: dict[str, Any], trained_migrated: dict[str, Any]
) -> None:
    assert trained.keys() == trained_migrated.keys()
    plain = [name for name in trained if "augmentation" not in name]
    assert len(plain) >= 26
    assert [name for name in plain if trained[name] != trained_migrated[name]] == []


def test_migrated_training_with_augmentation_runs_as_long_on_as_many_folds(
    trained: dict[str, Any], trained_migrated: dict[str, Any]
) -> None:
    augmented = [name for name in trained if "augmentation" in name]
    assert augmented
    for name in augmented:
        lengths = [
            [{key: len(values) for key, values in fold.items() if isinstance(values, list)} for fold in side["folds"]]
            for side in (trained[name], trained_migrated[name])
        ]
        assert lengths[0] == lengths[1]


@pytest.mark.exhaustive  # about the fixture
def test_the_signal_is_learnt(facts: dict[str, Any]) -> None:
    report = facts["learning"]
    assert report["train_losses"][-1] < 0.5 * report["train_losses"][0]
    assert report["val_accuracies"][-1] > 0.8


def test_lambdas_and_local_classes_cannot_be_pickled(facts: dict[str, Any]) -> None:
    report = facts["habits"]
    assert {name: entry["pickles"] for name, entry in report.items()} == {
        "dataset_utils.create_augmented_dataset_wrapper": False,
        "util_backup.create_augmented_dataset_wrapper": False,
        "util_backup.LazyStandardizedSubset": False,
        "util_backup.TransformedDataset": False,
        "dataset_utils.StandardizedSubset": True,
        "dataset_utils.AugmentedDataset": True,
    }
    assert all(entry["length"] == 8 and entry["sample_shape"] == [1, 32, 40] for entry in report.values())


SPLIT_ARGUMENTS = (
    "(dataset, train_indices, val_indices, model_class, num_classes, num_epochs=250, batch_size=48, "
    "lr=0.001, use_class_weights=True, estop=35, standardize=False"
)
K_FOLD_SIGNATURE = (
    "(dataset, model_class, num_classes, k_folds=4, num_epochs=300, batch_size=32, lr=0.001, "
    "random_state=435, aggregate_predictions=True, use_class_weights=True, estop=35, standardize=False)"
)
PREDEFINED_FOLDS_SIGNATURE = (
    "(dataset, fold_indices, model_class, num_classes, num_epochs=300, batch_size=32, lr=0.001, "
    "aggregate_predictions=True, use_class_weights=True, estop=35, standardize=False)"
)
CORE_ARGUMENTS = (
    "(data_path=None, features=None, labels=None, authors=None, model_class=None, num_classes=None, "
    "config=None, spec_augment=False, gaussian_noise=False"
)
SIGNATURES = {
    "dataset_utils.StandardizedDataset": "(data_list)",
    "dataset_utils.StandardizedSubset": "(original_dataset, indices, mean, std)",
    "dataset_utils.FastStandardizedSubset": "(original_dataset, indices, mean, std)",
    "dataset_utils.AugmentedDataset": "(base_dataset, augment_params=None, training=True)",
    "dataset_utils.create_augmented_dataset_wrapper": (
        "(dataset, use_spec_augment=False, use_gaussian_noise=False, augment_params=None, training=True)"
    ),
    "dataset_utils.compute_standardization_stats": "(dataset, indices, sample_size=1000)",
    "dataset_utils.create_standardized_subset": "(dataset, indices, mean, std, fast=False)",
    "dataset_utils.get_spect_matrix_list": "(dir, df)",
    "specaugment.SpecAugment": (
        "(time_mask_param=40, freq_mask_param=15, num_time_masks=1, num_freq_masks=1, mask_value=0.0, p=0.8)"
    ),
    "specaugment.GaussianNoise": "(std=0.02, p=0.8)",
    "specaugment.get_recommended_params": "(num_samples, num_classes, input_size=(224, 313))",
    "specaugment.get_augmentation_params": "(dataset_size, num_classes, aggressive=False)",
    "training_engine.TrainingEngine": "(model_class, num_classes, config)",
    "training_engine.TrainingEngine.run_cross_validation": "(self, dataset, fold_indices)",
    "training_engine.TrainingEngine.run_single_fold_predefined": ("(self, dataset, train_indices, val_indices)"),
    "training_engine.TrainingEngine.run_single_fold_stratified": "(self, dataset)",
    "training_engine.TrainingEngine._create_data_loaders": "(self, train_subset, val_subset)",
    f"training_utils.{SINGLE}": f"{SPLIT_ARGUMENTS})",
    f"training_utils.{FAST}": f"{SPLIT_ARGUMENTS})",
    f"training_utils.{AUGMENTED}": f"{SPLIT_ARGUMENTS}, augment_params=None)",
    f"cross_validation.{K_FOLD}": K_FOLD_SIGNATURE,
    f"cross_validation.{PREDEFINED_FOLDS}": PREDEFINED_FOLDS_SIGNATURE,
    f"util_backup.{SINGLE}": f"{SPLIT_ARGUMENTS})",
    f"util_backup.{FAST}": f"{SPLIT_ARGUMENTS})",
    f"util_backup.{AUGMENTED}": f"{SPLIT_ARGUMENTS}, augment_params=None)",
    f"util_backup.{K_FOLD}": K_FOLD_SIGNATURE,
    f"util_backup.{PREDEFINED_FOLDS}": PREDEFINED_FOLDS_SIGNATURE,
    "util_backup.AugmentedDataset": "(base_dataset, augment_params=None, training=True)",
    "util_backup.create_augmented_dataset_wrapper": "(dataset, augment_params=None, training=True)",
    "training_core.cross_val_training": f"{CORE_ARGUMENTS})",
    "training_core.single_fold_training": f"{CORE_ARGUMENTS}, use_predefined_split=True)",
    "evaluation_utils.get_confusion_matrix": "(model, data_loader, device, num_classes)",
}
EXPECTED_TO_EXIST = [
    "specaugment.PILSpecAugment",
    "specaugment.OnTheFlyAugmentation",
    "specaugment.visualize_specaugment",
    "training_utils.train_epoch",
    "training_utils.validate_epoch",
    "training_utils.train_single_fold",
    *(
        f"training_engine.TrainingEngine.{name}"
        for name in (
            "_train_single_fold_with_indices",
            "_create_data_subsets",
            "_initialize_training_components",
            "_compute_class_weights",
            "_train_model",
            "_train_epoch",
            "_validate_model",
            "_calculate_cv_summary",
        )
    ),
]


def test_public_names_have_the_documented_signatures(facts: dict[str, Any]) -> None:
    found = {name.removeprefix("utils."): text for name, text in facts["signatures"].items()}
    assert {name: found.get(name) for name in SIGNATURES} == SIGNATURES
    assert [name for name in EXPECTED_TO_EXIST if name not in found] == []


def test_helpers_do_what_they_say(facts: dict[str, Any]) -> None:
    report = facts["helpers"]

    synthetic = report["synthetic"]
    assert synthetic["repeats"] and synthetic["differs_by_seed"] and synthetic["global_state_untouched"]
    assert synthetic["dtypes"] == ["torch.float32", "torch.int64"]
    assert 0.0 <= synthetic["range"][0] < synthetic["range"][1] <= 1.0
    assert synthetic["class_counts"] == [6, 6, 6, 6]

    augmentation = report["augmentation"]
    assert augmentation["masks_something"] and augmentation["noise_changes"] and augmentation["input_untouched"]
    # One time mask of at most 10 of 40 columns and one frequency mask of at most 8 of 32 rows.
    assert augmentation["largest_masked_share"] <= 1 - (30 / 40) * (24 / 32) + 1e-6
    assert augmentation["never_below_p"]
    assert 0.0 <= augmentation["noise_range"][0] < augmentation["noise_range"][1] <= 1.0
    assert augmentation["pil_shape"] == [1, 32, 40]
    assert 0.0 <= augmentation["pil_rescales"][0] < 1.0 < augmentation["pil_rescales"][1] <= 255.0
    assert augmentation["pil_without_parameters"] == "TypeError"

    assert report["without_predefined_split"] == "UnboundLocalError"
    assert math.isfinite(report["from_images"]["train_losses"][0])
    assert report["from_images"]["confusion_shape"] == [4, 4]

    ensemble = report["ensemble"]
    assert ensemble["votes"] == 24 and ensemble["targets_in_order"]
    assert ensemble["probability_shape"] == [24, 4]
    assert ensemble["probability_sums"] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert len(ensemble["fold_accuracies"]) == 2

    assert report["standardized_loaders"] == {"samples": [20, 4], "same_values": True}
