"""What a migrated backend is like to work with: imports, notebooks, workers, its own tests, the way back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import ROOT, copy_of, run

from .conftest import FIXTURE, fingerprint

pytestmark = pytest.mark.slow

SPAWN_CHECK = """
import pickle, sys
from torch.utils.data import DataLoader
sys.path.insert(0, ".")
from utils.synthetic import make_synthetic_dataset
from utils import dataset_utils, util_backup

def main():
    data, _ = make_synthetic_dataset(32, 4, (1, 16, 20), num_authors=4, seed=1)
    mean, std = dataset_utils.compute_standardization_stats(data, list(range(32)))
    subset = dataset_utils.create_standardized_subset(data, list(range(32)), mean, std)
    datasets = [
        subset,
        dataset_utils.create_standardized_subset(data, list(range(32)), mean, std, fast=True),
        dataset_utils.StandardizedDataset([data[i] for i in range(32)]),
        dataset_utils.AugmentedDataset(subset, {"p": 1.0}),
        dataset_utils.create_augmented_dataset_wrapper(subset, use_spec_augment=True, use_gaussian_noise=True),
        util_backup.create_augmented_dataset_wrapper(subset),
        util_backup.LazyStandardizedSubset(data, list(range(32)), mean, std),
    ]
    for dataset in datasets:
        pickle.loads(pickle.dumps(dataset))
    seen = 0
    # A spawned worker imports everything anew; forked ones cost nothing.
    for dataset, context, workers in [(datasets[4], "spawn", 2), *((dataset, "fork", 8) for dataset in datasets)]:
        loader = DataLoader(dataset, batch_size=4, num_workers=workers, multiprocessing_context=context)
        seen += sum(len(y) for _, y in loader)
    print("seen", seen, "of", 32 * (len(datasets) + 1))

if __name__ == "__main__":
    main()
"""


def test_every_dataset_pickles_and_loads_with_eight_workers(migrated: Path, tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(SPAWN_CHECK)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(migrated), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(script)]
    result = subprocess.run(command, cwd=migrated, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == "seen 256 of 256"


def test_the_added_tests_pass_and_run_the_notebooks(migrated: Path) -> None:
    assert b"OptimalDataLoaderFactory" in (migrated / "notebooks" / "Train.ipynb").read_bytes()
    # As `pytest` does, and `python -m pytest` does not, leave the current folder out of the import path.
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CHIRPID_QUICK_BENCHMARK": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/", "-v", "-s", "-rs"]
    result = subprocess.run(
        command, cwd=migrated, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stdout
    for name in ("backend_standardised", "backend_augmented", "DataLoaderBenchmarking", "Train"):
        assert f"[{name}]" in result.stdout
    assert re.search(r"[\d,]+ samples/s", result.stdout) and " 192 " in result.stdout


def test_a_second_apply_changes_nothing(migrated: Path) -> None:
    before = fingerprint(migrated)
    result = run("apply", migrated)
    assert result.exit_code == 0
    assert fingerprint(migrated) == before


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.exhaustive), ["--unsafe", "--vendor"]])
def test_apply_then_rollback_leaves_the_tree_identical(tmp_path: Path, options: list[str]) -> None:
    backend = copy_of("backend", tmp_path / "backend")
    (backend / "utils" / "split.py").chmod(0o640)
    before = fingerprint(backend)
    assert run("apply", backend, *options).exit_code == 0
    assert fingerprint(backend) != before
    result = run("rollback", backend)
    assert result.exit_code == 0, result.stderr
    assert fingerprint(backend) == before


def test_a_vendored_backend_runs_without_the_tool_installed(tmp_path: Path) -> None:
    backend = copy_of("backend", tmp_path / "backend")
    assert run("apply", backend, "--vendor", "--no-scaffold").exit_code == 0
    assert not (backend / "utils" / "dataloader_factory.py").exists()
    code = (
        "import sys, chirpid_patch; assert chirpid_patch.__file__.startswith(sys.path[0]), chirpid_patch.__file__\n"
        "import utils.training_engine, utils.util_backup\n"
        "assert not {'libcst', 'click', 'chirp_migrate'} & set(sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-B", "-c", f"import sys; sys.path[0] = {str(backend)!r}\n{code}"],
        cwd=backend,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_rollback_refuses_over_later_edits_and_names_them(migrated: Path, tmp_path: Path) -> None:
    backend = shutil.copytree(migrated, tmp_path / "backend")
    edited = backend / "utils" / "training_engine.py"
    edited.write_text(edited.read_text() + "\n# my own change\n")
    state = fingerprint(backend)
    result = run("rollback", backend)
    assert result.exit_code == 3
    assert "utils/training_engine.py" in result.stderr
    assert fingerprint(backend) == state
    assert run("rollback", backend, "--force").exit_code == 0
    assert "my own change" not in edited.read_text()


def test_diff_writes_nothing_and_git_accepts_it(migrated: Path, tmp_path: Path) -> None:
    backend = copy_of("backend", tmp_path / "backend")
    before = fingerprint(backend)
    diff = run("apply", backend, "--diff")
    assert diff.exit_code == 0
    assert fingerprint(backend) == before
    applied = subprocess.run(
        ["git", "apply", "-p1"], cwd=backend, input=diff.stdout_bytes, capture_output=True, check=False
    )
    assert applied.returncode == 0, applied.stderr
    written = {name: value for name, value in fingerprint(migrated).items() if ".chirp-migrate" not in name}
    assert fingerprint(backend) == written


def test_json_lists_every_finding_with_place_rule_and_reason(migrated: Path) -> None:
    written = json.loads(migrated.with_name("findings.json").read_text())
    assert written["schema"] == 1 and written["skipped"] == []
    assert {finding["status"] for finding in written["findings"]} == {"rewrite", "opt-in", "report", "unchanged"}
    reports = [finding for finding in written["findings"] if finding["status"] == "report"]
    assert Counter(finding["rule"] for finding in reports) == {"CHP024": 9, "CHP025": 6, "CHP026": 5}
    rewritten = Counter(finding["rule"] for finding in written["findings"] if finding["status"] == "rewrite")
    assert rewritten["CHP029"] == 7
    for finding in written["findings"]:
        lines = (FIXTURE / finding["path"]).read_text().splitlines()
        assert 1 <= finding["line"] <= len(lines) and finding["message"] and finding["reason"]
