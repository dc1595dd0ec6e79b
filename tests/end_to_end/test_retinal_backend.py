"""The retinal-image backend: migrated as it stands, and the training is the same to the last bit."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import copy_of, run

from chirp_migrate.tune.config import read_config
from chirp_migrate.tune.sources import build_dataset_from_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_of("retinal_backend", tmp_path / "before")


@pytest.fixture
def modules() -> Iterator[None]:
    """The backend's modules are forgotten afterwards."""
    yield
    _forget()


def _forget() -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] in ("scripts", "chirp_verify")]:
        del sys.modules[name]


def trained(root: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[Any]:
    """What these trainings of the workload give."""
    from chirp_migrate.training.workload.entry_points import WorkloadSizes

    with monkeypatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(str(root))
        _forget()
        calls = importlib.import_module("chirp_verify").workload(
            WorkloadSizes(samples=40, epochs=2, batch_size=16, classes=5)
        )
        return [calls[name]() for name in names]


@pytest.mark.start_method("fork", reason="the original sends lambdas to workers")
def test_apply_then_the_training_is_the_same(root: Path, monkeypatch: pytest.MonkeyPatch, modules: None) -> None:
    migrated = root.with_name("after")
    shutil.copytree(root, migrated)
    assert run("apply", migrated, "--no-scaffold", "--all-loaders").exit_code == 0
    text = (migrated / "scripts" / "train.py").read_text()
    assert "create_training_loader" in text and "create_validation_loader" in text
    assert run("apply", migrated, "--no-scaffold", "--all-loaders").exit_code == 0
    assert (migrated / "scripts" / "train.py").read_text() == text
    (before,) = trained(root, monkeypatch, "train-plain")
    (after,) = trained(migrated, monkeypatch, "train-plain")
    assert [one["epoch"] for one in before] == [1, 2] and before == after


def test_tune_finds_the_dataset_of_its_configuration(
    root: Path, monkeypatch: pytest.MonkeyPatch, modules: None
) -> None:
    pytest.importorskip("yaml")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    _forget()
    config = read_config(root / "configs" / "retinal.yaml")
    importlib.import_module("scripts.make_data").make_data(config.data["data_csv"], config.data["data_img_dir"], 6)
    subject = build_dataset_from_config(root, config, uses_runtime=False)
    assert (subject.report.name, len(subject.dataset), subject.report.batch_size) == ("RetinalDataset", 6, 32)
    assert len(subject.dataset.transform.transforms) > len(subject.unaugmented.transform.transforms)
    assert subject.report.now is not None and subject.report.now.num_workers == 2
    image, grade = subject.dataset[0]
    assert image.shape == (3, 64, 64) and 0 <= grade < 5
