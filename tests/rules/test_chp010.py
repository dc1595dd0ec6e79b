"""Datasets that mask images of their samples are recognised by what they store, whatever else they make (CHP010)."""

from __future__ import annotations

from pathlib import Path

import pytest

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


STORE = "        self.base_dataset = base_dataset\n"
PASSED_ON = "super().__init__(base_dataset, training=training, transforms=["


@pytest.mark.parametrize(
    ("store", "arguments"),
    [
        (f"        super().__init__()\n{STORE}", PASSED_ON),
        ("        self.base_dataset: Dataset = base_dataset\n", PASSED_ON),
        (f"        print(base_dataset)\n{STORE}", PASSED_ON),
        (f"        self.prepare()\n{STORE}", ""),
        (f"{STORE}        if augment_params:\n            self.base_dataset = [0]\n", ""),
        ("        if augment_params:\n            self.base_dataset = []\n        else:\n            self.n = 3\n", ""),
    ],
)
def test_only_a_constructor_that_surely_stores_the_dataset_is_replaced(store: str, arguments: str) -> None:
    before = BEFORE.replace(STORE, store)
    after, _ = migrate("CHP010", before)
    assert arguments in after and (after == before) is (not arguments)


def test_a_dataset_of_another_name_that_a_condition_replaces_is_passed_on() -> None:
    store = STORE + "        if augment_params:\n            self.base_dataset = [0]\n"
    after, _ = migrate("CHP010", BEFORE.replace(STORE, store).replace("self.base_dataset", "self.source"))
    assert "    ([0]) if augment_params else base_dataset,\n" in after and "self.source = base_dataset\n" in after


def test_private_methods_that_only_reading_a_sample_uses_go_with_it() -> None:
    methods = (
        "    def _read(self, idx):\n        return self._pair(idx)\n\n"
        "    def _pair(self, idx):\n        return self.base_dataset[idx]\n\n"
        "    def _shape(self):\n        return self._read(0)[0].shape\n\n"
    )
    text = BEFORE.replace("    def __len__", f"{methods}    def __len__")
    used = text.replace("x, y = self.base_dataset[idx]", "x, y = self.base_dataset[idx]\n        self._shown(x)")
    used = used.replace("    def __len__", "    def _shown(self, x):\n        print(x)\n\n    def __len__")
    after, _ = migrate("CHP010", used)
    assert "def _shown" not in after and all(name in after for name in ("def _read", "def _pair", "def _shape"))
