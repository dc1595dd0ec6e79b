"""The added notebook and tests, run for real in a backend of a few lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from click.testing import CliRunner

import chirpid_patch
from chirp_migrate.additions.scaffold import scaffold_files
from chirp_migrate.cli.apply import apply

DATASET_UTILS = '''\
"""A backend's wrappers, after its migration."""
from chirpid_patch import WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset


def create_standardized_subset(dataset, indices, mean, std, fast=False):
    return WorkerSafeStandardizedDataset(dataset, indices, mean, std)


def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    return WorkerSafeAugmentedDataset(dataset, augment_params, training)
'''

# The same, as it was: a class that no other process can find.
LOCAL_CLASS = """

def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    methods = {"__len__": lambda self: len(dataset), "__getitem__": lambda self, index: dataset[index]}
    return type("AugmentedDataset", (object,), methods)()
"""


# A class that needs parameters, though its function has a default.
NEEDS_PARAMETERS = """

class NeedsParameters(WorkerSafeAugmentedDataset):
    def __init__(self, dataset, augment_params, training):
        super().__init__(dataset, {"spec_augment_params": dict(augment_params)}, training)


def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    return NeedsParameters(dataset, augment_params, training)
"""

# The same, and no parameters help.
NEVER_BUILT = """

def recommended(num_samples):
    return {}


def create_augmented_dataset_wrapper(dataset, augment_params=None, training=True):
    return WorkerSafeAugmentedDataset(dataset, recommended(), training)
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


@pytest.mark.slow
@pytest.mark.exhaustive  # test_migrated_backend.py runs the notebook
def test_the_notebook_runs_from_the_backends_root_and_says_what_it_measured(backend: Path) -> None:
    notebook = nbformat.read(backend / "notebooks" / "DataLoaderBenchmarking.ipynb", as_version=4)
    resources = {"metadata": {"path": str(backend)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    printed = outputs_of(notebook)
    assert f"nothing was applied in {backend}" in printed
    assert f"chirp-migrate report {backend} -o report.html" in printed
    assert re.search(r" [\d.]+ s +[\d,]+ +\d+ % +[\d.]+ +yes", printed)
    assert not re.search(r"\b(nan|inf|NO|NOT SAFE)\b", printed)


@pytest.mark.slow
@pytest.mark.exhaustive  # other tests run the notebook
def test_the_notebook_shows_what_the_report_says(backend: Path) -> None:
    (backend / "train.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], 2)\n")
    assert CliRunner().invoke(apply, [str(backend)]).exit_code == 0
    notebook = nbformat.read(backend / "notebooks" / "DataLoaderBenchmarking.ipynb", as_version=4)
    own = next(number for number, cell in enumerate(notebook.cells) if cell.source.startswith("## 2."))
    notebook.cells = notebook.cells[:own]
    resources = {"metadata": {"path": str(backend / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    assert "Verdict: none yet." in outputs_of(notebook)


@pytest.mark.slow
def test_the_added_tests_fail_on_a_dataset_that_is_not_worker_safe(backend: Path) -> None:
    (backend / "utils" / "dataset_utils.py").write_text(DATASET_UTILS + LOCAL_CLASS)
    result = run_pytest(backend, "tests/", "-k", "pickled_copy and backend")
    assert result.returncode == 1
    assert "1 failed, 1 passed" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "counts", "reason"),
    [
        pytest.param(DATASET_UTILS + NEEDS_PARAMETERS, "4 passed", "", marks=pytest.mark.exhaustive),
        (DATASET_UTILS + NEVER_BUILT, "2 passed, 2 skipped", "create_augmented_dataset_wrapper raises TypeError: reco"),
        (f"import a_package_that_is_not_there\n{DATASET_UTILS}", "4 skipped", "cannot be imported: No module named"),
    ],
    ids=["needs parameters", "never built", "import fails"],
)
def test_what_cannot_be_built_is_skipped_with_the_reason(backend: Path, text: str, counts: str, reason: str) -> None:
    (backend / "utils" / "dataset_utils.py").write_text(text)
    result = run_pytest(backend, "tests/", "-k", "(pickled_copy or eight_workers_load) and backend", "-rs")
    assert result.returncode == 0 and counts in result.stdout, result.stdout
    assert reason in result.stdout and "has no utils/dataset_utils.py" not in result.stdout


@pytest.mark.slow
@pytest.mark.exhaustive  # other tests run the notebook
def test_the_added_tests_fail_on_a_notebook_that_no_longer_runs(backend: Path) -> None:
    add_notebook(backend, "Old.ipynb", "from utils.dataset_utils import a_name_that_is_gone")
    result = run_pytest(backend, "tests/", "-k", "notebook and Old")
    assert result.returncode == 1
    assert "a_name_that_is_gone" in result.stdout


@pytest.mark.slow
@pytest.mark.exhaustive  # other tests run the notebook
def test_a_notebook_that_takes_too_long_is_reported_as_skipped(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIRPID_NOTEBOOK_TIMEOUT", "1")
    add_notebook(backend, "Long.ipynb", "import time; time.sleep(120)")
    result = run_pytest(backend, "tests/", "-k", "notebook and Long", "-rs")
    assert result.returncode == 0
    assert "set CHIRPID_NOTEBOOK_TIMEOUT" in result.stdout
