"""The start method of a run of the tests is that of every process that a test starts."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import ROOT
from torch.utils.data import DataLoader, TensorDataset

PROGRAM = """
import multiprocessing, sys
from torch.utils.data import DataLoader

class Rows:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return multiprocessing.get_start_method()

if __name__ == "__main__":
    (read_by,) = next(iter(DataLoader(Rows(), num_workers=1)))
    print(multiprocessing.get_all_start_methods()[0], multiprocessing.get_start_method(), read_by)
"""


class Started(TensorDataset):
    """Samples that name the process that reads them."""

    def __getitem__(self, index: Any) -> Any:
        return multiprocessing.get_start_method(), os.getpid()


def test_worker_processes_are_started_by_it() -> None:
    method = multiprocessing.get_all_start_methods()[0]
    (((read_by,), (pid,)),) = DataLoader(Started(torch.zeros(1)), num_workers=1)
    assert read_by == method and int(pid) != os.getpid()


def test_programs_that_tests_start_use_it(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    method = multiprocessing.get_all_start_methods()[0]
    assert ended.stdout.split() == [method] * 3, ended.stderr


def test_a_program_may_set_another(tmp_path: Path) -> None:
    code = "import multiprocessing as m; m.set_start_method('spawn'); print(m.get_start_method())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["spawn"]


TESTS = """
import multiprocessing, os, pytest

METHOD = multiprocessing.get_all_start_methods()[0]

@pytest.fixture(scope="module")
def started():
    multiprocessing.get_context("fork").Process(target=os.getpid).start()

def test_first(started): pass
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1, 2])
def test_second(started, number): pass
def test_nothing(): pass

@pytest.mark.start_method("fork", reason="is about fork")
def test_fork(): assert METHOD == "fork"
"""


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
@pytest.mark.exhaustive  # about the option of the suite itself
def test_only_tests_whose_processes_or_fixtures_forked_are_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(TESTS)

    def outcome(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", str(ROOT / "pyproject.toml")]
        command += ["--confcutdir", str(ROOT), "-p", "conftest", "-o", f"cache_dir={tmp_path / 'cache'}", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ["PYTHONPATH"]])}
        ended = subprocess.run(
            [*command, str(tmp_path)], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
        )
        return ended.stdout

    assert "6 passed" in outcome("--start-method", "fork")
    again = outcome("--start-method", "spawn", "--only-forking", "4")
    assert "4 passed, 2 deselected" in again
    each = outcome("--start-method", "spawn", "--only-forking", "4", "--one-of-each", "-m", "not slow")
    assert "2 passed, 4 deselected" in each
    whole = outcome("--start-method", "spawn")
    assert "5 passed, 1 skipped" in whole and "only under fork: is about fork" in whole
