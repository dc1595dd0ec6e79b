"""What a run names as the next step is a command that works there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support import LOADER, copy_of, run, write_files


def commands(shown: str) -> list[list[str]]:
    """The commands of this program that a run names on its last lines."""
    last = "\n".join(shown.splitlines()[-4:])
    return [shlex.split(one)[1:] for one in re.findall(r"chirp-migrate [a-z-]+ [^\s),]+", last)]


@pytest.mark.slow
def test_a_backend_whose_training_is_found_is_verified_next(tmp_path: Path) -> None:
    root = copy_of("backend", tmp_path / "backend")
    named = commands(run("apply", root, "--no-scaffold").stdout)
    assert [one[0] for one in named] == ["report", "verify", "rollback"]
    assert run("verify", "--list", root).exit_code == 0


@pytest.mark.parametrize("path", [".", *(pytest.param(one, marks=pytest.mark.slow) for one in ("train.py", "src"))])
def test_any_other_project_gets_a_workload_first(tmp_path: Path, path: str) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, "src/train.py": LOADER})
    named = commands(run("apply", path, cwd=root).stdout)
    assert [one[0] for one in named] == ["report", "init-workload", "verify", "rollback"]
    for one in named[:2]:
        assert run(*one, cwd=root).exit_code == 0
    assert run(*named[2], "--list", cwd=root).exit_code == 0, "now there is a workload"
    assert run(*named[3], cwd=root).exit_code == 0


def test_a_workload_that_is_there_is_verified_next(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, "chirp_verify.py": "def workload(sizes):\n    return {}\n"})
    assert [one[0] for one in commands(run("apply", root).stdout)] == ["report", "verify", "rollback"]


def test_in_a_work_tree_git_shows_the_diff(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": LOADER})
    assert "git" not in run("apply", ".", cwd=root).stdout
    run("rollback", ".", cwd=root)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    assert "Next: review (git diff), then run: " in run("apply", "--allow-dirty", ".", cwd=root).stdout
