"""Configuration keys of a migrated backend take effect, and its public names are as they were."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .conftest import FIXTURE

pytestmark = pytest.mark.slow

ENGINE = """
import contextlib, io, json, sys
sys.path.insert(0, ".")
import torch
from utils.models import BirdCNN
from utils.synthetic import make_synthetic_dataset
from utils.training_engine import TrainingEngine

data, _ = make_synthetic_dataset(40, 4, (1, 24, 30), num_authors=4, seed=1)
for chosen in json.loads(sys.argv[1]):
    config = {"num_epochs": 2, "batch_size": 8, "standardize": True, **chosen}
    engine = TrainingEngine(BirdCNN, 4, config)
    made = []
    create = engine._create_data_loaders
    engine._create_data_loaders = lambda *subsets: made.append(create(*subsets)) or made[-1]
    torch.manual_seed(3)
    with contextlib.redirect_stdout(io.StringIO()):
        result = engine.run_single_fold_predefined(data, list(range(30)), list(range(30, 40)))
    train, _ = made[0]
    kind = f"{type(train).__module__}.{type(train).__name__}"
    workers = getattr(train, "worker_processes", train.num_workers)
    print(json.dumps({"kind": kind, "workers": workers, "losses": result["train_losses"]}))
    print("NEXT", file=sys.stderr)
"""


@cache
def train(backend: Path) -> list[tuple[dict[str, Any], str]]:
    """What the engine did with each configuration there is, and what it wrote to standard error."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    configs = [{}] if backend == FIXTURE else [{}, {"optimize_dataloaders": False}, {"benchmark_performance": True}]
    command = [sys.executable, "-W", "ignore", "-c", ENGINE, json.dumps(configs)]
    result = subprocess.run(command, cwd=backend, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    did = [json.loads(line) for line in result.stdout.splitlines()]
    return list(zip(did, result.stderr.split("NEXT\n")[: len(did)], strict=True))


@pytest.mark.exhaustive  # tests of the factory and of CHP001 have the setting, too
def test_optimize_dataloaders_false_gives_the_original_loading_back(migrated: Path) -> None:
    original = train(FIXTURE)[0][0]
    optimized, plain = train(migrated)[0][0], train(migrated)[1][0]
    assert optimized["kind"] == "chirpid_patch.loading.loader.BatchedDataLoader" and optimized["workers"] == 0
    assert (plain["kind"], plain["workers"]) == (original["kind"], original["workers"])
    assert original["losses"] == optimized["losses"] == plain["losses"]


@pytest.mark.exhaustive  # tests of the monitor have the waits, too
def test_benchmark_performance_shows_the_waits_of_each_epoch(migrated: Path) -> None:
    silent, told = train(migrated)[0][1], train(migrated)[2][1]
    assert "data wait" not in silent
    assert told.count("data wait") >= 4  # two epochs of training and validation


#: What migrated classes have from the shipped ones.
INHERITED = ("__len__", "__getitem__", "forward", "__call__")


def public_signatures(backend: Path) -> dict[str, str]:
    """Arguments of every public function, class constructor and public method, by module and name."""
    found: dict[str, str] = {}
    for path in sorted((backend / "utils").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[f"{path.stem}.{node.name}"] = ast.unparse(node.args)
            elif isinstance(node, ast.ClassDef):
                found[f"{path.stem}.{node.name}"] = ""
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name not in INHERITED:
                        found[f"{path.stem}.{node.name}.{method.name}"] = ast.unparse(method.args)
    return found


def test_every_public_name_keeps_its_signature(migrated: Path) -> None:
    before, after = public_signatures(FIXTURE), public_signatures(migrated)
    assert len(before) > 60
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_installed_command_answers(option: str) -> None:
    command = Path(sys.executable).with_name("chirp-migrate")
    result = subprocess.run([command, option], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "chirp-migrate" in result.stdout
