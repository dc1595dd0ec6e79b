"""Both sides run in copies; the copy before the migration has the original files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chirp_migrate.training.process.snapshot import (
    copy_tree,
    restore_files_between_runs,
    restore_original_files,
    store_original_files,
    write_originals,
)


def test_copies_what_code_needs_and_names_what_is_too_large(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("utils/a.py", "data/labels.csv", ".git/config", "env/pyvenv.cfg", "env/lib.py", "__pycache__/a.pyc"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    with (source / "data" / "huge.npy").open("wb") as huge:
        huge.truncate(33 * 1024**2)
    (source / "link").symlink_to(source / "data", target_is_directory=True)
    (source / "dangling").symlink_to(tmp_path / "nowhere")

    copied = copy_tree(source, tmp_path / "copy")

    found = sorted(p.relative_to(tmp_path / "copy").as_posix() for p in (tmp_path / "copy").rglob("*") if p.is_file())
    assert found == ["data/labels.csv", "utils/a.py"]
    assert copied == ("data/huge.npy",)


def test_restoring_gives_back_bytes_and_removes_what_was_added(tmp_path: Path) -> None:
    (tmp_path / "changed.py").write_bytes(b"new")
    (tmp_path / "changed.py").chmod(0o444)
    (tmp_path / "added.py").write_bytes(b"new")

    write_originals(
        tmp_path, {"changed.py": b"old\r\n", "added.py": None, "sub/deleted.py": b"was here", "gone.py": None}
    )

    assert (tmp_path / "changed.py").read_bytes() == b"old\r\n"
    assert (tmp_path / "sub" / "deleted.py").read_bytes() == b"was here"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changed.py", "sub"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "utils/../../outside"])
def test_a_journal_cannot_write_outside_the_copy(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="outside the tree"):
        write_originals(tmp_path / "tree", {path: b"x"})


def test_what_a_run_left_is_gone_before_the_next_one(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("kept/a.py", "kept/b.py", "removed/c.py", "replaced.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    store_original_files(tree)
    restore_original_files(tree)
    (tree / "checkpoints" / "deep").mkdir(parents=True)
    (tree / "checkpoints" / "deep" / "last.pt").write_bytes(b"weights")
    (tree / "kept" / "b.py").write_text("kept/B.py")
    shutil.rmtree(tree / "removed")
    (tree / "replaced.py").unlink()
    (tree / "replaced.py").symlink_to(tmp_path)
    (tree / "kept" / "link").symlink_to(tree)
    times = (tree / "kept" / "a.py").stat().st_mtime_ns

    restore_original_files(tree)

    found = {path.relative_to(tree).as_posix(): path.read_text() for path in tree.rglob("*") if path.is_file()}
    assert found == {name: name for name in ("kept/a.py", "kept/b.py", "removed/c.py", "replaced.py")}
    assert sorted(path.name for path in tree.iterdir()) == ["kept", "removed", "replaced.py"]
    assert (tree / "kept" / "a.py").stat().st_mtime_ns == times, "what did not change is left alone"


def test_files_of_a_run_are_gone_before_the_next_one_of_its_process_but_folders_stay(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "config.yaml").write_text("kept")
    store_original_files(tree)
    (tree / "runs" / "1").mkdir(parents=True)
    (tree / "runs" / "1" / "last.pt").write_bytes(b"weights")
    (tree / "config.yaml").write_text("changed")

    restore_files_between_runs(tree)

    assert (tree / "config.yaml").read_text() == "kept"
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*")) == ["config.yaml", "runs", "runs/1"]
    restore_files_between_runs(tmp_path)  # without stored files, it changes nothing
    assert (tree / "runs").is_dir()


def test_a_folder_whose_mode_a_run_changed_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "tree" / "folder").mkdir(parents=True)
    (tmp_path / "tree" / "folder" / "a.py").write_text("kept")
    mode = (tmp_path / "tree" / "folder").stat().st_mode
    store_original_files(tmp_path / "tree")
    (tmp_path / "tree" / "folder").chmod(0o700 if mode & 0o077 else 0o755)

    restore_original_files(tmp_path / "tree")

    assert (tmp_path / "tree" / "folder" / "a.py").read_text() == "kept"
    assert (tmp_path / "tree" / "folder").stat().st_mode == mode
