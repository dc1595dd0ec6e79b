"""Migrated and original backend train the same: every entry point, in fresh processes, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import FIXTURE, ROOT

DRIVER = ROOT / "tests" / "fixture_backend" / "drive_backend.py"


def drive(backend: Path, out: Path) -> dict[str, Any]:
    """Results of every training entry point of a backend."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, str(DRIVER), str(out)]
    result = subprocess.run(command, cwd=backend, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(out.read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def results(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results before and after."""
    folder = tmp_path_factory.mktemp("results")
    return drive(FIXTURE, folder / "before.json"), drive(migrated, folder / "after.json")


def test_training_without_augmentation_is_identical_to_the_last_bit(
    results: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    before, after = results
    assert before.keys() == after.keys()
    plain = [name for name in before if "augmentation" not in name]
    assert len(plain) >= 26
    differing = [name for name in plain if before[name] != after[name]]
    assert differing == []


def test_training_with_augmentation_runs_as_long_on_as_many_folds(
    results: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    before, after = results
    augmented = [name for name in before if "augmentation" in name]
    assert augmented
    for name in augmented:
        shapes = [
            [
                {key: len(values) for key, values in fold.items() if isinstance(values, list)}
                for fold in side[name]["folds"]
            ]
            for side in (before, after)
        ]
        assert shapes[0] == shapes[1]
