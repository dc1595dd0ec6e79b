"""`apply --diff > patch && git apply patch` gives what `apply` writes, whatever files and names are like."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support import LOADER, run, snapshot, write_files

CRLF = LOADER.replace("\n", "\r\n")
CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": [LOADER]}
NOTEBOOK = {"cells": [CELL], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}


def git(root: Path, *arguments: str, stdin: bytes = b"") -> None:
    subprocess.run(["git", *arguments], cwd=root, input=stdin, check=True, capture_output=True)


def contents(files: dict[str, tuple[str, int, bytes]]) -> dict[str, bytes]:
    """What the files of a tree hold, without git's own."""
    return {path: of[2] for path, of in files.items() if not path.startswith(".git/")}


CASES: dict[str, dict[str, str | bytes]] = {
    "plain": {"train.py": LOADER},
    "no newline at the end": {"train.py": LOADER.rstrip("\n")},
    "no newline behind the only line that changes": {"train.py": f"{LOADER}print(1)"},
    "no newline anywhere in two files": {"a.py": LOADER.rstrip("\n"), "b.py": LOADER.rstrip("\n"), "c.py": LOADER},
    "a dependency behind no newline": {"train.py": LOADER, "requirements.txt": "torch\nnumpy"},
    "an empty file that gets a line": {"train.py": LOADER, "requirements.txt": ""},
    "CRLF": {"train.py": CRLF, "requirements.txt": "torch\r\n"},
    "CRLF without the last one": {"train.py": CRLF.rstrip("\r\n")},
    "mixed newlines": {"train.py": LOADER.replace("\n", "\r\n", 1) + "x = 1\r\ny = 2\n"},
    "form feeds": {"train.py": f"\f\n{LOADER}\f\nx = 1\n"},
    "a byte order mark": {"train.py": f"\ufeff{LOADER}"},
    "Latin-1": {"train.py": f"# coding: latin-1\n{LOADER}# äöü\n".encode("latin-1")},
    "a name that is not ASCII": {"modèles/träin 訓練.py": LOADER},
    "a name with blanks": {"my code/train set.py": LOADER},
    "a name with quotes": {'it\'s "mine".py': LOADER},
    "a name with a backslash and a tab": {"a\\b\tc.py": LOADER},
    "a name that looks like another": {"a/b.py": LOADER, "b/b.py": LOADER, "-x.py": LOADER},
    "a notebook": {"train.ipynb": json.dumps(NOTEBOOK, indent=1)},
    "files that are added": {"utils/training_engine.py": LOADER, "requirements.txt": "torch"},
}


@pytest.mark.parametrize("name", CASES)
def test_a_patch_gives_what_apply_writes(tmp_path: Path, name: str) -> None:
    patched, applied = (write_files(tmp_path / one, CASES[name]) for one in ("patched", "applied"))
    for root in (patched, applied):
        git(root, "init", "--quiet")
        git(root, "config", "core.autocrlf", "false")
    done = run("apply", "--diff", patched)
    assert done.exit_code == 0
    git(patched, "apply", "--whitespace=nowarn", "-", stdin=done.stdout_bytes)
    assert run("apply", "--allow-dirty", applied).exit_code == 0
    first, second = (snapshot(root, journal=False) for root in (patched, applied))
    assert contents(first) == contents(second)
    assert b"OptimalDataLoaderFactory" in done.stdout_bytes


def test_a_patch_of_a_folder_of_the_project_is_applied_at_its_top(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"src/train.py": LOADER.rstrip("\n"), "other.py": LOADER})
    git(root, "init", "--quiet")
    done = run("apply", "--diff", "src", cwd=root)
    git(root, "apply", "-", stdin=done.stdout_bytes)
    assert "OptimalDataLoaderFactory" in (root / "src" / "train.py").read_text()
    assert (root / "other.py").read_text() == LOADER
    git(root / "src", "apply", "--reverse", "-", stdin=done.stdout_bytes)
    assert (root / "src" / "train.py").read_text() == LOADER.rstrip("\n")


def test_a_patch_removes_a_dependency_and_adds_a_copy(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": LOADER, "requirements.txt": "torch"})
    git(root, "init", "--quiet")
    assert run("apply", "--allow-dirty", root).exit_code == 0
    git(root, "apply", "-", stdin=run("apply", "--diff", "--vendor", root).stdout_bytes)
    assert (root / "requirements.txt").read_text() == "torch"
    assert (root / "chirpid_patch" / "py.typed").is_file()


def test_a_patch_of_a_file_that_was_renamed_and_not_committed_is_applied(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"old.py": LOADER.rstrip("\n")})
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "all")
    git(root, "mv", "old.py", "new.py")
    git(root, "apply", "-", stdin=run("apply", "--diff", root).stdout_bytes)
    assert "OptimalDataLoaderFactory" in (root / "new.py").read_text()
