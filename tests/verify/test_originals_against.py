"""What the migrated backend is compared with; git's index and work tree are only read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.verify.sides.baseline import find_original_version


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A backend below the top of a repository: committed once, then changed, with ignored and new files."""
    top = tmp_path / "repository"
    root = top / "services" / "backend"
    (root / "utils").mkdir(parents=True)
    git(tmp_path, "init", "-q", "repository")
    (top / ".gitignore").write_text("*.npy\nlocal_settings.py\n")
    (top / "elsewhere.py").write_text("")
    (root / "utils" / "train.py").write_bytes(b"old = 1\r\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "gone.py").write_text("was here\n")
    (root / "näme.py").write_text("x = 'ü'\n")
    (root / "link.py").symlink_to("utils/train.py")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    git(top, "tag", "before")
    (root / "utils" / "train.py").write_bytes(b"new = 1\n")
    (root / "gone.py").unlink()
    (root / "added.py").write_text("untracked\n")
    (root / "data.npy").write_bytes(b"ignored data")
    (root / "local_settings.py").write_text("ignored = True\n")
    return root


def contents(tree: Path) -> dict[str, bytes]:
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_a_revision_has_its_own_files_and_what_git_ignores(backend: Path, tmp_path: Path) -> None:
    git(backend, "add", "added.py")  # staged, which must stay so
    index = (backend.parents[1] / ".git" / "index").read_bytes()
    files = contents(backend.parents[1])

    before = find_original_version(backend, "before")
    assert before.write(tmp_path / "tree") == ()

    assert before.described.startswith("git revision before (")
    assert contents(tmp_path / "tree") == {
        "utils/train.py": b"old = 1\r\n",
        "run.sh": b"#!/bin/sh\n",
        "gone.py": b"was here\n",
        "näme.py": "x = 'ü'\n".encode(),
        "link.py": b"old = 1\r\n",
        "data.npy": b"ignored data",
        "local_settings.py": b"ignored = True\n",
    }
    assert (tmp_path / "tree" / "run.sh").stat().st_mode & 0o111
    assert contents(backend.parents[1]) == files
    assert (backend.parents[1] / ".git" / "index").read_bytes() == index


@pytest.mark.parametrize("name", ["nowhere", "--output=/tmp/x", "before:services", "no such thing"])
def test_what_is_no_revision(backend: Path, name: str) -> None:
    with pytest.raises(NoTrainingFound, match="neither a folder nor a git revision"):
        find_original_version(backend, name)


def test_a_revision_without_the_folder(backend: Path) -> None:
    top = backend.parents[1]
    git(top, "checkout", "-q", "--orphan", "empty")
    git(top, "commit", "-q", "--allow-empty", "-m", "empty", "--only", "--", ".gitignore")
    with pytest.raises(NoTrainingFound, match="has no folder services/backend/"):
        find_original_version(backend, "empty")


def test_outside_any_repository(tmp_path: Path) -> None:
    with pytest.raises(NoTrainingFound, match="not in a git work tree"):
        find_original_version(tmp_path, "main")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "old" / "utils").mkdir(parents=True)
    (tmp_path / "old" / "utils" / "a.py").write_text("a = 1\n")
    (tmp_path / "new").mkdir()
    before = find_original_version(tmp_path / "new", str(tmp_path / "old"))
    before.write(tmp_path / "tree")
    assert contents(tmp_path / "tree") == {"utils/a.py": b"a = 1\n"}
    with pytest.raises(NoTrainingFound, match="is the folder PATH itself"):
        find_original_version(tmp_path / "new", str(tmp_path / "new"))


def test_neither_applied_nor_compared(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="pass --baseline"):
        find_original_version(tmp_path, None)
