"""A multi-scale trainer and ensemble inference in the old style train the same after ``apply``, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import copy_of, run

#: Runs every training call of the hook of each backend given, small, and writes what they return. One process for
#: both, because importing PyTorch and its optimisers takes longer than the training.
DRIVER = """
import json, os, sys
from types import SimpleNamespace
import torch

def train(root):
    os.chdir(root)
    sys.path.insert(0, root)
    from chirp_verify import workload
    sizes = SimpleNamespace(samples=40, shape=(3, 24, 24), epochs=2, batch_size=8, seed=5)
    results = {}
    for name in workload(sizes):
        torch.manual_seed(6)
        results[name] = workload(sizes)[name]()
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(root):
            del sys.modules[name]
    sys.path[:] = [path for path in sys.path if not path.startswith(root)]
    return results

torch.set_num_threads(1)
json.dump([train(root) for root in sys.argv[2:]], open(sys.argv[1], "w"))
"""


def trained(out: Path, *roots: Path) -> list[dict[str, Any]]:
    """Results of the training calls of each backend, from a fresh process."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", DRIVER, str(out), *map(str, roots)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(out.read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_of("multi_scale_backend", tmp_path_factory.mktemp("multi_scale") / "backend")
    result = run("apply", root, "--all-loaders")
    assert result.exit_code == 0, result.output
    return root


@pytest.mark.slow
def test_every_hand_made_loader_comes_from_the_factory(migrated: Path) -> None:
    for script, loaders in (("multi_scale_trainer", 2), ("trainer", 2), ("ensemble_inference", 1)):
        text = (migrated / "src" / "training" / f"{script}.py").read_text()
        assert " DataLoader(" not in text
        assert text.count("OptimalDataLoaderFactory.create_") == loaders, text
    assert "@standardizes_samples(" in (migrated / "src" / "training" / "trainer.py").read_text()


@pytest.mark.slow
def test_training_and_inference_are_the_same_to_the_last_bit(migrated: Path, tmp_path: Path) -> None:
    before, after = trained(tmp_path / "results.json", copy_of("multi_scale_backend", tmp_path / "before"), migrated)
    assert before.keys() == {"multi_scale", "multi_scale_augmented", "trainer", "ensemble"}
    assert after == before
    assert before["ensemble"].keys() == {"accuracy", "members", "predictions", "confidence"}  # the format of results
