"""Both packages on a system that has nothing of POSIX: see ``tests/in_children/no_posix.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import no_posix
import pytest
from support import ROOT, copy_of, snapshot

pytestmark = pytest.mark.slow


def run_without_posix(*command: str | Path, cwd: Path, answers: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python without what only POSIX systems have."""
    environment = {**os.environ, no_posix.VARIABLE: "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, input=answers, capture_output=True, text=True
    )


IMPORTS = """
import importlib, pkgutil, sys
for package in ("chirp_migrate", "chirpid_patch"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__") and ".templates" not in module.name:
            importlib.import_module(module.name)
print(sum(name.startswith(("chirp_migrate.", "chirpid_patch.")) for name in sys.modules))
"""


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    ended = run_without_posix("-c", IMPORTS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 300


TAKEN = """
import __main__
__main__.__name__ = "chirpid_patch.sample"
import os, signal, pathlib, multiprocessing
print(*[hasattr(os, name) for name in ("fork", "sched_getaffinity", "getuid", "killpg")])
print(*[hasattr(signal, name) for name in ("SIGKILL", "SIGALRM", "SIGCHLD")])
print(pathlib.Path("/a/b/c").relative_to("/a"), multiprocessing.get_all_start_methods())
for module in ("fcntl", "resource"):
    try:
        __import__(module, globals())
    except ImportError:
        print("no", module)
for path in ("/proc/self/status", "/sys/fs/cgroup/memory.max", "/dev/shm/x"):
    try:
        pathlib.Path(path).read_text()
    except FileNotFoundError:
        print("no", path)
"""


def test_what_is_taken_is_missed(tmp_path: Path) -> None:
    ended = run_without_posix("-c", TAKEN, cwd=tmp_path)
    assert ended.stdout.splitlines() == [
        "False False False False",
        "False False False",
        "b\\\\c ['spawn']".replace("\\\\", "\\"),
        "no fcntl",
        "no resource",
        "no /proc/self/status",
        "no /sys/fs/cgroup/memory.max",
        "no /dev/shm/x",
    ], ended.stderr


def test_a_backend_is_checked_migrated_reviewed_and_rolled_back(tmp_path: Path) -> None:
    backend = copy_of("backend", tmp_path / "backend")
    before = snapshot(backend, journal=False)

    def chirp(*arguments: str, answers: str = "") -> int:
        ended = run_without_posix("-m", "chirp_migrate", *arguments, str(backend), cwd=tmp_path, answers=answers)
        assert "Traceback" not in ended.stderr and "internal error" not in ended.stderr, ended.stderr
        assert "\\" not in ended.stdout.replace("\\n", "")
        return ended.returncode

    assert chirp("plan", "-o", "plan.json") == 0
    assert chirp("apply") == 0
    assert chirp("check") == 0
    assert chirp("rollback") == 0
    assert snapshot(backend, journal=False) == before
    assert chirp("review", "--plan", "plan.json", answers="y\nq\n") == 1  # the others wait for an answer
    assert (tmp_path / "plan.json").is_file() and snapshot(backend, journal=False) == before


LOADING = """
import torch
from torch.utils.data import Dataset
from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset

class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((1, 4, 4), float(index)), index

def numbers(loader):
    return sorted(int(y) for _, labels in loader for y in labels)

if __name__ == "__main__":
    for make, dataset in (
        (BatchedDataLoader, Rows()),
        (OptimalDataLoaderFactory.create_loader, WorkerSafeAugmentedDataset(Rows(), {"time_mask_param": 2, "p": 1.0})),
    ):
        loader = make(dataset, batch_size=4, num_workers=2, shuffle=True, persistent_workers=True)
        assert numbers(loader) == numbers(loader) == list(range(12))
        print(loader.num_workers)
    tuned = OptimalDataLoaderFactory.create_training_loader(Rows(), 4, tune="kept.json", tune_seconds=0.5)
    assert numbers(tuned) == list(range(12))
"""


@pytest.mark.exhaustive  # `make test-no-posix` has the tests of workers
def test_workers_load_on_spawn(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOADING)
    ended = run_without_posix("-W", "error::RuntimeWarning", "program.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["2", "2"]


#: What reads and writes files, locks, ends processes and asks for memory and CPUs, without waiting for many workers.
SELECTION = (
    "tests/transaction/test_commit.py",
    "tests/transaction/test_journal.py",
    "tests/transaction/test_rollback.py",
    "tests/cli/test_add_ignore.py",
    "tests/rules/test_pairs.py",
    "tests/chirpid_patch/transforms/test_declared_transforms.py",
    "tests/chirpid_patch/datasets/test_dataset_classes.py",
    "tests/chirpid_patch/datasets/test_stacking.py",
    "tests/chirpid_patch/memory/test_batch_size.py",
    "tests/chirpid_patch/machine/test_usable_cpus.py",
    "tests/training/test_child.py",
)


#: Tests about owners of files and about flushing folders, which only POSIX systems have.
ABOUT_POSIX = (
    "tests/transaction/test_commit.py::test_all_of_it_is_on_disk_before_the_next_step_needs_it",
    "tests/transaction/test_commit.py::test_the_owner_stays",
    "tests/transaction/test_commit.py::test_whoever_cannot_keep_the_owner_keeps_the_group_they_are_in",
)


@pytest.mark.exhaustive  # the other tests here run both packages without POSIX
def test_the_tests_of_both_packages_pass(tmp_path: Path) -> None:
    left_out = [f"--deselect={name}" for name in ABOUT_POSIX]
    options = ["-q", "-m", "not slow", "--no-posix", "-o", f"cache_dir={tmp_path}", *left_out]
    ended = run_without_posix("-m", "pytest", *options, *SELECTION, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout
