"""Work that git could not give back stops a run; what is committed does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from chirp_migrate.errors import WriteRefused
from chirp_migrate.source.git import refuse_uncommitted_changes, uncommitted_paths

FILES = ["a.py", "deep/b.py", "with space.py", "ümlaut.py", "star*.py"]


def git(folder: Path, *arguments: str) -> None:
    """Run git without the user's configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A backend that is a folder of a larger repository, all of it committed."""
    root = tmp_path / "repository" / "backend"
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    git(root.parent, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all")
    return root


def test_a_repository_that_git_cannot_read_stops_a_run(backend: Path) -> None:
    (backend.parent / ".git" / "config").write_text("[")
    with pytest.raises(WriteRefused, match=r"cannot list uncommitted changes.*bad config.*--allow-dirty"):
        refuse_uncommitted_changes(backend, FILES)


def test_a_clean_tree_passes(backend: Path) -> None:
    assert uncommitted_paths(backend, FILES) == []
    refuse_uncommitted_changes(backend, FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("staged", [False, True])
def test_each_changed_file_is_named(backend: Path, name: str, staged: bool) -> None:
    (backend / name).write_text("x = 2\n")
    if staged:
        git(backend, "add", "--all")
    assert uncommitted_paths(backend, FILES) == [name]


def test_only_files_that_are_to_be_touched_count(backend: Path) -> None:
    (backend / "a.py").write_text("x = 2\n")
    (backend / "new.py").write_text("x = 2\n")
    assert uncommitted_paths(backend, ["deep/b.py", "with space.py"]) == []


def test_an_untracked_file_counts(backend: Path) -> None:
    (backend / "folder").mkdir()
    (backend / "folder" / "new.py").write_text("x = 1\n")
    assert uncommitted_paths(backend, ["a.py", "folder/new.py"]) == ["folder/new.py"]


def test_a_file_moved_in_the_index_counts(backend: Path) -> None:
    git(backend, "mv", "a.py", "moved.py")
    assert uncommitted_paths(backend, ["moved.py", "deep/b.py"]) == ["moved.py"]


def test_a_link_counts_as_the_file_that_is_written_through_it(backend: Path) -> None:
    (backend / "link.txt").symlink_to("deep/b.py")
    (backend / "folder").symlink_to("deep", target_is_directory=True)
    git(backend, "add", "--all")
    git(backend, "commit", "--quiet", "--message", "links")
    assert uncommitted_paths(backend, ["link.txt", "folder/b.py"]) == []
    (backend / "deep" / "b.py").write_text("x = 2\n")
    assert uncommitted_paths(backend, ["link.txt"]) == ["link.txt"]
    assert uncommitted_paths(backend, ["folder/b.py"]) == ["folder/b.py"]


def test_a_repository_inside_the_backend_is_asked_about_its_own_files(backend: Path) -> None:
    inner = backend / "inner"
    inner.mkdir()
    (inner / "c.py").write_text("x = 1\n")
    git(inner, "init", "--quiet")
    assert uncommitted_paths(backend, ["a.py", "inner/c.py"]) == ["inner/c.py"]
    git(inner, "add", "--all")
    git(inner, "commit", "--quiet", "--message", "all")
    assert uncommitted_paths(backend, ["a.py", "inner/c.py"]) == []


def test_many_files_are_asked_about(backend: Path) -> None:
    names = [f"many/{number:04d}.py" for number in range(450)]
    (backend / "many").mkdir()
    for name in names:
        (backend / name).write_text("x = 1\n")
    assert uncommitted_paths(backend, names) == names


def test_the_refusal_lists_the_files_and_the_way_on(backend: Path) -> None:
    for name in ("a.py", "deep/b.py"):
        (backend / name).write_text("x = 2\n")
    with pytest.raises(WriteRefused, match="--allow-dirty") as caught:
        refuse_uncommitted_changes(backend, FILES)
    assert "a.py, deep/b.py " in str(caught.value)
    assert caught.value.exit_code == 3


def test_outside_a_repository_there_is_nothing_to_guard(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    refuse_uncommitted_changes(tmp_path, ["a.py"])


def test_without_git_there_is_nothing_to_guard(backend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (backend / "a.py").write_text("x = 2\n")
    monkeypatch.setenv("PATH", str(backend))
    refuse_uncommitted_changes(backend, FILES)


def test_a_repository_that_git_cannot_read_is_not_taken_for_a_clean_one(backend: Path) -> None:
    (backend.parent / ".git" / "index").write_bytes(b"damaged")
    with pytest.raises(WriteRefused, match="--allow-dirty"):
        refuse_uncommitted_changes(backend, FILES)


def test_variables_of_a_git_hook_do_not_lead_to_another_repository(
    backend: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (backend / "a.py").write_text("x = 2\n")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert uncommitted_paths(backend, FILES) == ["a.py"]
