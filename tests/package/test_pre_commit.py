"""The hooks, run by pre-commit itself over git repositories; what they run is the program installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import ROOT

WORK = "from torch.utils.data import DataLoader\n\n\ndef loader(data):\n    return DataLoader(data, batch_size=8)\n"
CLEAN = "def double(value):\n    return 2 * value\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "as it is")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A repository with our hooks, as a backend's configuration names it; ``system``: nothing is installed for them."""
    repository = tmp_path_factory.mktemp("hooks")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", repository)
    revision = commit(repository)
    ids = [hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())]
    assert ids == ["chirp-migrate-check", "chirp-migrate-apply"]
    chosen = [{"id": one, "language": "system", "additional_dependencies": []} for one in ids]
    return {"repo": str(repository), "rev": revision, "hooks": chosen}


@pytest.fixture
def backend(tmp_path: Path, hooks: dict[str, object]) -> Path:
    """A committed backend that has the hooks."""
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hooks]}))
    (tmp_path / "README.md").write_text("A backend.\n")
    (tmp_path / "train.py").write_text(WORK)
    commit(tmp_path)
    return tmp_path


def pre_commit(backend: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    programs = str(Path(sys.executable).parent)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PRE_COMMIT"))},
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "PRE_COMMIT_HOME": str(home),
    }
    command = [sys.executable, "-m", "pre_commit", "run", "--color", "never", *arguments]
    return subprocess.run(command, cwd=backend, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps its clone of the hooks."""
    return tmp_path_factory.mktemp("pre-commit")


@pytest.mark.slow
def test_a_commit_is_held_while_work_remains_and_changes_nothing(backend: Path, home: Path) -> None:
    held = pre_commit(backend, home, "--all-files")

    assert held.returncode == 1
    assert "train.py:5:12: CHP001" in held.stdout and "exit code: 1" in held.stdout
    assert "chirp-migrate apply" not in held.stdout.partition("CHP001")[0], "apply runs only when it is asked for"
    assert (backend / "train.py").read_text() == WORK

    (backend / "train.py").write_text(CLEAN)
    git(backend, "add", "--all")
    passed = pre_commit(backend, home)

    assert passed.returncode == 0, passed.stdout
    assert "Passed" in passed.stdout


def test_a_commit_without_python_is_not_looked_at(backend: Path, home: Path) -> None:
    (backend / "README.md").write_text("Another.\n")
    git(backend, "add", "--all")
    result = pre_commit(backend, home)

    assert result.returncode == 0, result.stdout
    assert "no files to check" in result.stdout


@pytest.mark.slow
def test_apply_rewrites_when_it_is_asked_for(backend: Path, home: Path) -> None:
    result = pre_commit(backend, home, "chirp-migrate-apply", "--hook-stage", "manual", "--all-files")

    assert "files were modified by this hook" in result.stdout
    assert "OptimalDataLoaderFactory" in (backend / "train.py").read_text()

    git(backend, "add", "--all")
    checked = pre_commit(backend, home, "--all-files")
    assert checked.returncode == 0, checked.stdout
