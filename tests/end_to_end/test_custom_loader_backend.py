"""A backend whose loader class does everything itself: applied, and moved by hand to the class that does it for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import FIXTURES, ROOT, copy_of, run

FIXTURE = FIXTURES / "custom_loader_backend"

#: What a person makes of segmentation/loading.py after reading docs/migration-notes.md.
BY_HAND = """
import torch
from chirpid_patch.recipes.wrapped_loader import WrappedDataLoader


class CropLoader(WrappedDataLoader):
    def __init__(self, dataset, classes=None, **kwargs):
        self.classes = classes if classes is not None else dataset.classes
        super().__init__(dataset, **kwargs)

    def collate_fn(self, samples):
        batch = super().collate_fn(samples)
        if self.is_train and torch.rand(()).item() < 0.5:
            batch = {key: value.flip(-1) for key, value in batch.items()}
        return batch

    def _cleanup_workers(self):
        self.shutdown()
"""
DRIVER = """
import json, sys, types
from segmentation.volumes import CropDataset
import segmentation.training as training

dataset, validation = (CropDataset(('cell', 'nucleus'), count=n, size=16, seed=n) for n in (40, 12))
ways = {'shuffled': {}, 'weighted': {'weighted': True}, 'pool': {'workers': 1, 'iterations': 2}}

def histories(*names):
    return {name: training.fit(dataset, validation, epochs=2, seed=3, **ways[name]) for name in names}

found = {'as it is': histories(*ways)}
if len(sys.argv) > 1:
    exec(sys.argv[1], vars(moved := types.ModuleType('moved')))
    training.CropLoader = moved.CropLoader
    found['by hand'] = histories('shuffled', 'weighted')
print(json.dumps(found))
"""


def training(tree: Path, *moved: str) -> subprocess.Popen[str]:
    """Some trainings of the backend, in a process of their own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVER, *moved]
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def metrics(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the trainings found, by way and name."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the fixture after ``chirp-migrate apply``, its findings beside it."""
    copy = copy_of("custom_loader_backend", tmp_path_factory.mktemp("custom_loader") / "backend")
    found = str(copy.with_name("findings.json"))
    result = run("apply", copy, "--no-scaffold", "--all-loaders", "--json", found)
    assert result.exit_code == 0, result.output
    return copy


def test_the_loader_class_is_listed_and_its_loader_migrated(backend: Path) -> None:
    findings = json.loads(backend.with_name("findings.json").read_text(encoding="utf-8"))["findings"]
    (advice,) = [one for one in findings if one["rule"] == "CHP023"]
    assert (advice["path"], advice["status"]) == ("segmentation/loading.py", "report")
    assert "`chirpid_patch.WrappedDataLoader`" in advice["message"]
    loading = (backend / "segmentation" / "loading.py").read_text(encoding="utf-8")
    assert "OptimalDataLoaderFactory" in loading and "ProcessPoolExecutor" in loading


@pytest.mark.slow
@pytest.mark.exhaustive  # other backends train the same, too
def test_the_training_is_the_same_applied_and_built_on_the_wrapper(backend: Path) -> None:
    with training(FIXTURE) as original, training(backend, BY_HAND) as migrated:
        before, after = metrics(original)["as it is"], metrics(migrated)
    assert after["as it is"] == before
    assert after["by hand"] == {name: before[name] for name in ("shuffled", "weighted")}
