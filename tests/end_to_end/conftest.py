"""A copy of the fixture backend, migrated once through the command line."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "fixtures" / "backend"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def run_tool(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "chirp_migrate", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def copy_of_fixture(target: Path) -> Path:
    """A pristine copy of the fixture backend."""
    ignored = shutil.ignore_patterns("__pycache__", ".chirp-migrate", ".ipynb_checkpoints")
    shutil.copytree(FIXTURE, target, ignore=ignored)
    return target


def fingerprint(folder: Path) -> dict[str, str]:
    """Mode and hash of every file, and the folders, of a tree."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in path.parts:
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[name] = f"{path.stat().st_mode:o} {content}"
    return found


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture backend after ``chirp-migrate apply``."""
    backend = copy_of_fixture(tmp_path_factory.mktemp("end_to_end") / "backend")
    result = run_tool("apply", str(backend))
    assert result.returncode == 0, result.stderr
    return backend
