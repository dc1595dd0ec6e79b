"""``rollback --merge``: what the migration did goes, what was edited since stays, and nothing is half done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import snapshot
from transaction_tools import dies_at, migration, plan_of, rewrites, write_tree

from chirp_migrate.cli import entry_point
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import applied_runs
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback

BEFORE = b"import torch\n\n\ndef load():\n    return 1\n\n\nx = load()\n\n\nprint(x)\n"
AFTER = BEFORE.replace(b"import torch\n", b"import torch\nimport chirpid_patch\n").replace(b"x = load()", b"x = fast()")
#: A line that the migration did not touch, as somebody wrote it afterwards.
EDIT = (b"return 1", b"return 2  # edited")
ALSO_EDITED = (b"x = fast()", b"x = fast(1)")


def migrated(root: Path, *edits: tuple[bytes, bytes]) -> None:
    """A tree with one file rewritten and one added, and edited since."""
    (root / "a.py").write_bytes(BEFORE)
    (root / "a.py").chmod(0o640)
    commit_plan(
        plan_of(root, FilePlan("a.py", BEFORE, AFTER, "rewrite"), FilePlan("new.py", None, b"n = 1\n", "scaffold"))
    )
    edit(root, *edits)


def edit(root: Path, *edits: tuple[bytes, bytes]) -> None:
    """Edit the file as it is now."""
    content = (root / "a.py").read_bytes()
    for old, new in edits:
        assert old in content
        content = content.replace(old, new)
    (root / "a.py").write_bytes(content)


def test_the_migration_is_undone_and_the_edit_stays(tree: Path) -> None:
    migrated(tree, EDIT)
    with pytest.raises(WriteRefused, match="--merge"):
        rollback(tree)
    result = rollback(tree, merge=True)
    assert (result.merged, result.removed, result.restored) == (("a.py",), ("new.py",), ())
    assert snapshot(tree) == {"a.py": ("file", 0o640, BEFORE.replace(*EDIT))}


def test_what_nobody_edited_is_as_it_was_to_the_byte(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    commit_plan(migration(tree))
    (tree / "utils" / "crlf.py").chmod(0o700)
    assert rollback(tree, merge=True).merged == ()
    assert snapshot(tree) == before


def test_edits_of_the_same_lines_are_named_and_nothing_changes(tree: Path) -> None:
    migrated(tree, EDIT, ALSO_EDITED)
    left = snapshot(tree)
    with pytest.raises(
        WriteRefused,
        match=r"a\.py \(the migration and the later edits changed the same code in 1 place, the first near line",
    ):
        rollback(tree, merge=True)
    assert snapshot(tree) == left


def test_added_and_deleted_files_have_no_merge(tree: Path) -> None:
    migrated(tree)
    (tree / "new.py").write_bytes(b"n = 2\n")
    (tree / "a.py").unlink()
    left = snapshot(tree)
    with pytest.raises(
        WriteRefused, match=r"a\.py \(deleted\); new\.py \(the migration added the file, and the file was edited since"
    ):
        rollback(tree, merge=True)
    assert snapshot(tree) == left


@pytest.mark.parametrize(
    ("name", "before", "around", "edit"),
    [
        ("a.py", b"a\nb\nc\nd\n", b'"""\n%b"""\n', (b"c\n", b"no Python\nc\n")),
        ("a.ipynb", b"1\n\n \n\n", b"[\n%b]\n", (b" \n", b", 2\n")),
    ],
)
def test_what_would_be_no_python_or_json_is_not_written(
    tree: Path, name: str, before: bytes, around: bytes, edit: tuple[bytes, bytes]
) -> None:
    (tree / name).write_bytes(before)
    after = around % before
    commit_plan(rewrites(tree, {name: after}))
    (tree / name).write_bytes(after.replace(*edit))
    with pytest.raises(
        WriteRefused, match="without the code that the migration added, the edited file would not be valid"
    ):
        rollback(tree, merge=True)
    assert (tree / name).read_bytes() == after.replace(*edit)


def test_edits_of_requirements_stay_too(tree: Path) -> None:
    (tree / "requirements.txt").write_bytes(b"torch\n\n# tests\npytest\n")
    commit_plan(rewrites(tree, {"requirements.txt": b"torch\nchirpid-patch\n\n# tests\npytest\n"}))
    (tree / "requirements.txt").write_bytes(b"torch\nchirpid-patch\n\n# tests\npytest>=8\n")
    assert rollback(tree, merge=True).merged == ("requirements.txt",)
    assert (tree / "requirements.txt").read_bytes() == b"torch\n\n# tests\npytest>=8\n"


def test_what_git_cannot_merge_as_text_is_named_and_nothing_changes(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x = 1\n")
    commit_plan(rewrites(tree, {"a.py": b"x = 2\n"}))
    (tree / "a.py").write_bytes(b"x = 2\n\0")
    left = snapshot(tree)
    with pytest.raises(WriteRefused, match=r"a\.py \(git cannot merge the file as text\)"):
        rollback(tree, merge=True)
    assert snapshot(tree) == left


def test_a_merge_that_is_stopped_leaves_the_edits_and_the_run(tree: Path) -> None:
    class Stop(Exception):
        pass

    def stop(step: ProgressStep) -> None:
        if step.text == "replaced a.py":
            raise Stop

    migrated(tree, EDIT)
    left = snapshot(tree, journal=False)
    with pytest.raises(Stop):
        rollback(tree, merge=True, on_step=stop)
    assert snapshot(tree, journal=False) == left
    assert applied_runs(tree)[0].original("a.py") == BEFORE
    rollback(tree, merge=True)
    assert snapshot(tree) == {"a.py": ("file", 0o640, BEFORE.replace(*EDIT))}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that dies")
@pytest.mark.slow
def test_killed_at_any_moment_the_edits_are_kept(tree: Path) -> None:
    wanted = {"a.py": ("file", 0o640, BEFORE.replace(*EDIT))}
    moment, died = 0, True
    while died:
        root = tree / str(moment)
        root.mkdir()
        migrated(root, EDIT)
        left = snapshot(root, journal=False)
        died = dies_at(moment, root, lambda root=root: rollback(root, merge=True))
        recover(root)
        if snapshot(root, journal=False) == left:
            rollback(root, merge=True)
        assert snapshot(root) == wanted
        moment += 1
    assert moment > 10


def test_without_git_one_sentence_says_so(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    migrated(tree, EDIT)
    left = snapshot(tree)
    monkeypatch.setenv("PATH", str(tree))
    with pytest.raises(SystemExit) as ended:
        entry_point(["rollback", "--merge", str(tree)])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 3 and "--merge needs git" in line
    assert snapshot(tree) == left


def test_the_command_says_what_it_kept(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrated(tree, EDIT)
    with pytest.raises(SystemExit) as ended:
        entry_point(["rollback", "--merge", str(tree)])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "merged    a.py " in said
