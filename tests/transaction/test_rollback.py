"""After a rollback the tree is what it was: every byte, every mode, every name; and nobody's later work is lost."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import MEMORY, snapshot
from transaction_tools import ADDED, BACKEND, migration, plan_of, rewrites, write_tree

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.errors import CommitFailed, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import applied_runs
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback


def test_apply_then_rollback_is_identity(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    result = rollback(tree)
    assert snapshot(tree) == before
    assert result.restored == tuple(name for name, _, _ in BACKEND if name != "untouched.py")
    assert result.removed == tuple(ADDED)


names = st.sampled_from(["a.py", "b.txt", "deep/c.py", "deep/er/d.py", "other/e.ipynb"])
modes = st.sampled_from([0o600, 0o644, 0o664, 0o755, 0o200])


@settings(max_examples=40)
@given(
    st.dictionaries(names, st.tuples(st.binary(max_size=40), modes)),
    st.lists(st.dictionaries(names, st.binary(max_size=40), min_size=1), min_size=1, max_size=3),
)
def test_any_runs_rolled_back_one_by_one_are_identity(
    files: dict[str, tuple[bytes, int]], runs: list[dict[str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = Path(folder).resolve()
        for name, (content, mode) in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
            (root / name).chmod(mode)
        states = [snapshot(root)]
        for contents in runs:
            planned = [
                FilePlan(name, (root / name).read_bytes() if (root / name).exists() else None, content, "rewrite")
                for name, content in contents.items()
            ]
            if commit_plan(plan_of(root, *planned)).run:
                states.append(snapshot(root))
        for state in reversed(states[:-1]):
            rollback(root)
            assert snapshot(root) == state
        assert not applied_runs(root)


def test_edited_files_are_all_named_and_nothing_changes(tree: Path) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    (tree / "latin.py").write_bytes(b"edited\n")
    (tree / "utils" / "dataloader_factory.py").write_bytes(b"edited too\n")
    (tree / "empty.py").unlink()
    left = snapshot(tree)
    with pytest.raises(WriteRefused, match="--force") as caught:
        rollback(tree)
    for name in ("latin.py", "utils/dataloader_factory.py", "empty.py (deleted)"):
        assert name in str(caught.value)
    assert "engine.py" not in str(caught.value)
    assert snapshot(tree) == left


def test_force_restores_edited_and_deleted_files(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    (tree / "latin.py").write_bytes(b"edited\n")
    for name in ("engine.py", "crlf.py", "bom.py", "dataloader_factory.py"):
        (tree / "utils" / name).unlink()
    (tree / "utils").rmdir()
    rollback(tree, force=True)
    assert snapshot(tree) == before


def test_an_added_file_that_is_gone_already_is_no_edit(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    (tree / "utils" / "dataloader_factory.py").unlink()
    assert rollback(tree).removed == ("notebooks/deep/Bench.ipynb",)
    assert snapshot(tree) == before


def test_a_changed_mode_is_restored(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    (tree / "latin.py").chmod(0o444)
    rollback(tree)
    assert snapshot(tree) == before


def test_a_folder_with_somebodys_file_in_it_stays(tree: Path) -> None:
    commit_plan(plan_of(tree, FilePlan("notebooks/deep/Bench.ipynb", None, b"{}", "scaffold")))
    (tree / "notebooks" / "mine.txt").write_bytes(b"mine")
    rollback(tree)
    assert sorted(snapshot(tree)) == ["notebooks", "notebooks/mine.txt"]


def test_bytecode_of_added_modules_goes_with_them(tree: Path) -> None:
    (tree / "utils" / "__pycache__").mkdir(parents=True)
    (tree / "utils" / "__pycache__" / "engine.cpython-311.pyc").write_bytes(b"of another module")
    before = snapshot(tree)
    commit_plan(
        plan_of(tree, FilePlan("patch/a.py", None, b"", "vendor"), FilePlan("utils/a.py", None, b"", "scaffold"))
    )
    for folder in ("patch", "utils"):
        (tree / folder / "__pycache__").mkdir(exist_ok=True)
        (tree / folder / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"compiled")
    rollback(tree)
    assert snapshot(tree) == before


def test_runs_are_undone_last_first(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"1")
    commit_plan(rewrites(tree, {"a.py": b"2"}))
    commit_plan(rewrites(tree, {"a.py": b"3"}))
    rollback(tree)
    assert (tree / "a.py").read_bytes() == b"2"
    rollback(tree)
    assert snapshot(tree) == {"a.py": ("file", (tree / "a.py").stat().st_mode & 0o7777, b"1")}


def test_nothing_applied_is_one_sentence(tree: Path) -> None:
    with pytest.raises(UsageProblem, match="nothing was applied") as caught:
        rollback(tree)
    assert caught.value.exit_code == 2
    assert snapshot(tree) == {}
    (tree / ".chirp-migrate").mkdir()
    with pytest.raises(UsageProblem, match="nothing was applied"):
        rollback(tree)
    assert snapshot(tree) == {}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("replaced", ["file", "folder"])
def test_a_link_that_took_the_place_of_a_file_is_never_followed(tmp_path: Path, replaced: str, force: bool) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "utils").mkdir(parents=True)
    outside.mkdir()
    (root / "utils" / "a.py").write_bytes(b"x = 1\n")
    commit_plan(rewrites(root, {"utils/a.py": b"x = 2\n"}))
    (outside / "a.py").write_bytes(b"x = 2\n")
    (root / "utils" / "a.py").unlink()
    if replaced == "file":
        (root / "utils" / "a.py").symlink_to(outside / "a.py")
    else:
        (root / "utils").rmdir()
        (root / "utils").symlink_to(outside, target_is_directory=True)
    left = snapshot(tmp_path)
    with pytest.raises(WriteRefused, match="Move the link or folder to another place"):
        rollback(root, force=force)
    assert snapshot(tmp_path) == left


def test_a_file_that_took_the_place_of_a_folder_stays(tree: Path) -> None:
    (tree / "utils").mkdir()
    (tree / "utils" / "a.py").write_bytes(b"x = 1\n")
    commit_plan(rewrites(tree, {"utils/a.py": b"x = 2\n"}))
    (tree / "utils" / "a.py").unlink()
    (tree / "utils").rmdir()
    (tree / "utils").write_bytes(b"x = 3\n")
    left = snapshot(tree)
    with pytest.raises(WriteRefused, match="no longer a regular file"):
        rollback(tree)
    assert snapshot(tree) == left


@pytest.mark.parametrize("edited", [False, True])
def test_an_error_after_any_step_leaves_the_migration_standing(tree: Path, tmp_path: Path, edited: bool) -> None:
    def prepare(root: Path) -> None:
        write_tree(root)
        commit_plan(migration(root))
        if edited:
            (root / "latin.py").write_bytes(b"edited\n")

    steps: list[str] = []
    prepare(tmp_path)
    rollback(tmp_path, force=True, on_step=lambda step: steps.append(step.text))
    assert len(steps) == len(set(steps)) > 10
    prepare(tree)
    left = snapshot(tree, journal=False)
    for doomed in steps:

        def fail(step: ProgressStep, doomed: str = doomed) -> None:
            if step.text == doomed:
                raise OSError(errno.EIO, "Input/output error", "somewhere")

        with pytest.raises(CommitFailed, match="still applied") as caught:
            rollback(tree, force=True, on_step=fail)
        assert caught.value.exit_code == 4
        assert snapshot(tree, journal=False) == left, doomed
        assert applied_runs(tree)


def test_a_file_that_changes_during_the_rollback_stops_it(tree: Path) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    left = snapshot(tree, journal=False)

    def edit(step: ProgressStep) -> None:
        if step.text == "replaced utils/engine.py":
            (tree / "latin.py").write_bytes(b"edited\n")

    with pytest.raises(WriteRefused, match=r"latin\.py changed"):
        rollback(tree, on_step=edit)
    assert snapshot(tree, journal=False) == {**left, "latin.py": ("file", 0o640, b"edited\n")}


def test_a_folder_that_cannot_be_removed_leaves_the_migration_standing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    left = snapshot(tree)
    remove = Path.rmdir

    def refuse(self: Path) -> None:
        if self.name == "notebooks":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        remove(self)

    monkeypatch.setattr(Path, "rmdir", refuse)
    with pytest.raises(CommitFailed, match=r"notebooks cannot be written: Permission denied\. Nothing was rolled back"):
        rollback(tree)
    assert snapshot(tree) == left


def test_undoing_that_fails_too_is_said_and_the_rollback_can_be_finished(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if "crlf.py" in str(target):
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        return replace(self, target)

    def then_break(step: ProgressStep) -> None:
        if step.text == "replaced utils/crlf.py":
            monkeypatch.setattr(Path, "replace", refuse)
            raise OSError(errno.EIO, "Input/output error", "somewhere")

    with pytest.raises(CommitFailed, match=r"Input/output error\), and its changes .*finishes the rollback"):
        rollback(tree, on_step=then_break)
    monkeypatch.undo()
    said = recover(tree)
    assert said is not None and said.startswith("A rollback") and snapshot(tree) == before


def test_a_journal_that_cannot_be_removed_is_said_and_removed_later(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "0001":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CommitFailed, match="all files are as before the migration, but the journal cannot be removed"):
        rollback(tree)
    assert snapshot(tree, journal=False) == before
    monkeypatch.undo()
    assert recover(tree) is not None and snapshot(tree) == before
