"""Where datasets come from, and what is said where none can be had: in this process, without measuring."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chirp_migrate.training.errors import TaskNotPossible, UserCodeError
from chirp_migrate.tune.config import TuneConfig
from chirp_migrate.tune.sources import build_dataset_from_config, build_dataset_from_reference

SETS = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

class Numbers(Dataset):
    def __init__(self, count=10):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return torch.tensor(float(index))

def doubled(samples):
    return 2 * torch.stack(samples)

def loader():
    return DataLoader(Numbers(), batch_size=5, shuffle=True, num_workers=2, collate_fn=doubled, drop_last=True)

def given_the_configuration(path):
    return Numbers(len(path))

def broken():
    raise KeyError('label')

def broken_at_length():
    raise ValueError('no label:\\nnone at all')

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))

class Endless:
    def __getitem__(self, index):
        return index

empty = Numbers(0)
ready = TensorDataset(torch.zeros(7, 2))
nothing = print
"""
RETINAL = """
class RetinalDataset:
    def __init__(self, csv_file, img_dir, transform=None, size=8):
        self.has = (csv_file, img_dir, transform, size)
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return index

def get_train_transforms(strength=1):
    return f'train {strength}'

def get_val_transforms():
    return 'val'
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write modules into a folder that is the first import path and the working directory; they are gone afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) is None or str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def config(**data: Any) -> TuneConfig:
    numbers = {"batch_size": 24, "num_workers": data.get("num_workers")}
    return TuneConfig("c.yaml", "/somewhere/c.yaml", data, {"batch_size": 24}, {}, **numbers)


def test_a_class_a_function_an_object_and_a_file(tree: Callable[..., Path]) -> None:
    tree(tune_sets=SETS)
    assert len(build_dataset_from_reference("tune_sets:Numbers", "", None, False).dataset) == 10
    assert build_dataset_from_reference("tune_sets.py:Numbers", "", None, False).report.batch_size == 32
    assert len(build_dataset_from_reference("tune_sets:ready", "", None, False).dataset) == 7
    subject = build_dataset_from_reference(
        "tune_sets:given_the_configuration", "tune_sets:Numbers", config(num_workers=3), False
    )
    assert len(subject.dataset) == len("/somewhere/c.yaml") and subject.report.batch_size == 24
    assert subject.unaugmented is not None and subject.report.now is not None and subject.report.now.num_workers == 3
    assert subject.report.setting["num_workers"] == "data.num_workers in c.yaml"


def test_of_a_loader_everything_about_batches_is_kept(tree: Callable[..., Path]) -> None:
    tree(tune_sets=SETS)
    subject = build_dataset_from_reference("tune_sets:loader", "", None, False)
    assert subject.report.batch_size == 5 and subject.options["shuffle"] and subject.options["drop_last"]
    assert subject.collate.__name__ == "doubled" and not subject.report.migrated
    assert subject.report.now is not None and subject.report.now.size == (2, 0, 4) and subject.asked_workers == 2


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("no_such_module:x", "PATH has no module no_such_module; its modules are tune_sets"),
        ("tune_stes.py:x", r"PATH has no file tune_stes.py; did you mean tune_sets.py\?"),
        ("tune_sets:Missing", "tune_sets has no function or class Missing; it has Numbers, "),
        (
            "tune_sets:given_the_configuration",
            "cannot be called without arguments .*'path'",
        ),
        ("tune_sets:empty", "Numbers has no samples"),
        ("tune_sets:Stream", "Stream is an iterable dataset"),
        ("tune_sets:Endless", "Endless has no length"),
        ("tune_sets:nothing", "returned NoneType: it must return a dataset or a DataLoader"),
    ],
)
def test_no_dataset_is_said_in_one_sentence(tree: Callable[..., Path], reference: str, problem: str) -> None:
    tree(tune_sets=SETS)
    with pytest.raises(TaskNotPossible, match=problem) as raised:
        build_dataset_from_reference(reference, "", None, False)
    assert "\n" not in str(raised.value)


def test_code_that_raises_is_the_user_s(tree: Callable[..., Path]) -> None:
    tree(tune_sets=SETS, tune_broken="import no_such_dependency\n")
    with pytest.raises(UserCodeError, match=r"tune_sets:broken.* KeyError: 'label'"):
        build_dataset_from_reference("tune_sets:broken", "", None, False)
    with pytest.raises(UserCodeError, match=r"^tune_sets:broken_at_length raised ValueError: no label:$"):
        build_dataset_from_reference("tune_sets:broken_at_length", "", None, False)
    with pytest.raises(UserCodeError, match=r"tune_broken.* ModuleNotFoundError"):
        build_dataset_from_reference("tune_broken:x", "", None, False)


def test_the_dataset_of_a_configuration_is_built_as_the_document_s_script_builds_it(tree: Callable[..., Path]) -> None:
    root = tree(scripts__retinal=RETINAL, other="def get_train_transforms(): ...")
    subject = build_dataset_from_config(
        root, config(data_csv="grades.csv", data_img_dir="images", strength=3, num_workers=4), False
    )
    assert subject.dataset.has == ("grades.csv", "images", "train 3", 8)
    assert subject.unaugmented.has[2] == "val"
    assert subject.report.batch_size == 24 and subject.report.now is not None and subject.report.now.num_workers == 4


def test_a_configuration_that_does_not_fit_says_what_is_missing(tree: Callable[..., Path]) -> None:
    root = tree(scripts__retinal=RETINAL)
    with pytest.raises(TaskNotPossible, match=r"img_dir.* c\.yaml .*data\.img_dir"):
        build_dataset_from_config(root, config(csv_file="grades.csv"), False)
    tree(scripts__second=RETINAL)
    with pytest.raises(TaskNotPossible, match=r"found: scripts\.retinal:RetinalDataset, scripts\.second"):
        build_dataset_from_config(root, config(), False)
    with pytest.raises(TaskNotPossible, match="found: none"):
        build_dataset_from_config(root / "scripts" / "nowhere", config(), False)
