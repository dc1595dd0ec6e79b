"""The added notebook and tests, run for real in a backend of a few lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import nbclient
import nbformat
import pytest

import chirpid_patch
from chirp_migrate.additions.scaffold import scaffold_files

DATASET_UTILS = '''\
"""A backend's wrappers, after its migration."""
from chirpid_patch import WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset


def create_standardized_subset(dataset, indices, mean, std, fast=False):
    return WorkerSafeStandardizedDataset(dataset, indices, mean, std)


def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    return WorkerSafeAugmentedDataset(dataset, augment_params, training)
'''

ENTRY = "training_utils.fast_single_fold_training_with_predefined_split"

# The same, as it was: a class that no other process can find.
LOCAL_CLASS = """

def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    methods = {"__len__": lambda self: len(dataset), "__getitem__": lambda self, index: dataset[index]}
    return type("AugmentedDataset", (object,), methods)()
"""


@pytest.fixture(autouse=True)
def runtime_for_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the runtime that is tested here, and write no byte code beside it."""
    package = Path(chirpid_patch.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
    monkeypatch.setenv("CHIRPID_QUICK_BENCHMARK", "1")


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    root = tmp_path / "backend"
    (root / "utils").mkdir(parents=True)
    (root / "utils" / "dataset_utils.py").write_text(DATASET_UTILS)
    for path, text in scaffold_files(root):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def run_pytest(backend: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # As `pytest` does, and `python -m pytest` does not, leave the current folder out of the import path.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=backend, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def add_notebook(backend: Path, name: str, source: str) -> None:
    cell = nbformat.v4.new_code_cell(source)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), backend / "notebooks" / name)


def outputs_of(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


def plots_of(notebook: nbformat.NotebookNode) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
def test_the_notebook_runs_from_the_backends_root_and_says_what_it_measured(backend: Path) -> None:
    notebook = nbformat.read(backend / "notebooks" / "DataLoaderBenchmarking.ipynb", as_version=4)
    resources = {"metadata": {"path": str(backend)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    printed = outputs_of(notebook)
    assert "No verdict is kept for this backend yet" in printed
    assert f"chirp-migrate verify {backend}" in printed
    assert "the same to the last bit: yes" in printed
    assert "Safe with every number of workers tried." in printed
    assert "GPU utilisation" in printed
    assert re.search(r"optimised, factory's choice +[\d.]+ s +[\d,]+ +\d+ % +[\d.]+ +yes", printed)
    assert not re.search(r"\b(nan|inf|NO|NOT SAFE)\b", printed)


@pytest.fixture
def verified(backend: Path) -> Path:
    """The backend with what `verify` keeps (docs/json.md), cut down to one entry point."""
    walk = {"role": "train", "waits_s": [0.5, 0.014, 0.015]}
    usage = [{"seconds": second, "memory_bytes": 500 * 2**20} for second in (0.1, 0.2)]
    raw = {"entries": {ENTRY: {"walks": [walk]}}, "usage": usage}
    rates = [
        {"loader": "plain", "workers": 0, "samples_per_second": 900.0},
        {"loader": "plain", "workers": 2, "samples_per_second": 1100.0},
        {"loader": "factory", "workers": 0, "samples_per_second": 7000.0},
    ]
    definition = {
        "name": "wait_p50_ms",
        "title": "median wait",
        "unit": "ms",
        "method": "from asking to having",
    }
    ratio = {"value": 0.4, "low": 0.36, "high": 0.45}
    factory = (backend / "utils" / "dataloader_factory.py").read_bytes()
    document = {
        "verdict": "faster",
        "reason": "all entry points together: 60.0 % less time",
        "ratio": ratio,
        "perfect": {"value": 0.32, "low": 0.3, "high": 0.34},
        "ratios": {ENTRY: ratio},
        "verdicts": {ENTRY: {"verdict": "meets the threshold", "perfect": {"value": 0.32, "low": 0.3, "high": 0.34}}},
        "seconds": {"before": {ENTRY: [2.5, 2.4]}, "after": {ENTRY: [1.0, 1.1]}, "cached": {ENTRY: [0.8]}},
        "measures": {
            "definitions": [definition],
            "figures": {"before": {"wait_p50_ms": 14.2}, "after": {"wait_p50_ms": 0.9}},
            "raw": {"before": raw, "after": {**raw, "rates": rates}},
        },
        "targets": [{"verdict": "met", "target": "more than 10 batches/s", "why": "219 batches/s"}],
        "machine": {"processor": "AMD EPYC", "usable_cpus": 2, "accelerator": None, "torch": "2.13.0"},
        "created": "2026-03-01T12:00:00Z",
        "files": {"utils/dataloader_factory.py": sha256(factory).hexdigest()},
    }
    for run, kept in (("0001", {**document, "verdict": "slower"}), ("0002", document)):
        (backend / ".chirp-migrate" / run).mkdir(parents=True)
        (backend / ".chirp-migrate" / run / "verify.json").write_text(json.dumps(kept))
    return backend


@pytest.mark.slow
def test_the_notebook_shows_the_last_verdict_that_was_kept_with_its_plots(verified: Path) -> None:
    (verified / "utils" / "performance_monitor.py").write_text("# not among the verified files\n")
    notebook = nbformat.read(verified / "notebooks" / "DataLoaderBenchmarking.ipynb", as_version=4)
    own = next(number for number, cell in enumerate(notebook.cells) if cell.source.startswith("## 2."))
    told = notebook.cells[:own]
    # Once more after an edit and without matplotlib, in the same process: its start is what takes time.
    edit = (
        "(ROOT / 'utils' / 'dataloader_factory.py').write_text('# edited')\n"
        "(ROOT / '.chirp-migrate' / '0003').mkdir()\nplt = None"
    )
    again = [nbformat.v4.new_code_cell(cell.source) for cell in told[3:] if cell.cell_type == "code"]
    notebook.cells = [*told, nbformat.v4.new_code_cell(edit), *again]
    resources = {"metadata": {"path": str(verified / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    first, second = (nbformat.v4.new_notebook(cells=cells) for cells in (told, notebook.cells[own + 1 :]))
    for printed in (outputs_of(first), outputs_of(second)):
        assert "Verdict: faster" in printed
        assert "60 % [55, 64]" in printed
        assert "meets the threshold" in printed
        assert re.search(r"median wait +14.2 +0.9 +ms", printed)
        assert "median wait: from asking to having." in printed
        assert "met: more than 10 batches/s (219 batches/s)" in printed
    assert "CHANGED SINCE" not in outputs_of(first)
    assert "CHANGED SINCE, verify again: utils/dataloader_factory.py, run 0003 of apply" in outputs_of(second)
    assert plots_of(first) == 2
    assert plots_of(second) == 0


@pytest.mark.slow
def test_the_added_tests_fail_on_a_dataset_that_is_not_worker_safe(backend: Path) -> None:
    (backend / "utils" / "dataset_utils.py").write_text(DATASET_UTILS + LOCAL_CLASS)
    result = run_pytest(backend, "tests/", "-k", "pickled_copy and backend")
    assert result.returncode == 1
    assert "1 failed, 1 passed" in result.stdout


@pytest.mark.slow
def test_the_added_tests_fail_on_a_notebook_that_no_longer_runs(backend: Path) -> None:
    add_notebook(backend, "Old.ipynb", "from utils.dataset_utils import a_name_that_is_gone")
    result = run_pytest(backend, "tests/", "-k", "notebook and Old")
    assert result.returncode == 1
    assert "a_name_that_is_gone" in result.stdout


@pytest.mark.slow
def test_a_notebook_that_takes_too_long_is_reported_as_skipped(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIRPID_NOTEBOOK_TIMEOUT", "1")
    add_notebook(backend, "Long.ipynb", "import time; time.sleep(120)")
    result = run_pytest(backend, "tests/", "-k", "notebook and Long", "-rs")
    assert result.returncode == 0
    assert "set CHIRPID_NOTEBOOK_TIMEOUT" in result.stdout
