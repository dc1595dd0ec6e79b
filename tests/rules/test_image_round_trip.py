"""Datasets that mask images of their samples are recognised by what they store, whatever else they make (CHP010)."""

from __future__ import annotations

from pathlib import Path

from tests.support import migrate

BEFORE = (Path(__file__).parents[2] / "fixtures/rules/CHP010/before.py").read_text(encoding="utf-8")


def test_what_other_attributes_are_made_by_does_not_matter() -> None:
    loop = "def listed(values):\n    for value in values:\n        print(value)\n    return values\n\n\nclass Augmented"
    store = "self.values = listed([1, 2])\n        self.augment = "
    text = BEFORE.replace("class Augmented", loop).replace("self.augment = ", store)
    after, _ = migrate("CHP010", text)
    assert "class AugmentedDataset(WorkerSafeAugmentedDataset):" in after and "self.values = listed([1, 2])" in after


def test_choices_between_values_are_handed_up() -> None:
    store = "self.base_dataset = base_dataset"
    choice = "if base_dataset is None:\n            self.base_dataset = []\n        else:\n            " + store
    after, _ = migrate("CHP010", BEFORE.replace(store, choice))
    assert "    ([]) if (base_dataset is None) else base_dataset,\n" in after


def test_a_dataset_without_a_flag_for_training_passes_none_on() -> None:
    text = BEFORE.replace("        self.training = training\n", "").replace("if self.training:", "if True:")
    after, _ = migrate("CHP010", text)
    assert "super().__init__(base_dataset, transforms=[WorkerSafeSpecAugment(" in after


def test_a_class_of_the_project_takes_no_place_of_the_runtime_s() -> None:
    after, _ = migrate("CHP010", BEFORE.replace("class Augmented", "class SpecAugment:\n    pass\n\n\nclass Augmented"))
    assert "from chirpid_patch import SpecAugment as WorkerSafeSpecAugment\n" in after
    assert "transforms=[WorkerSafeSpecAugment(**(augment_params or {}))]" in after
