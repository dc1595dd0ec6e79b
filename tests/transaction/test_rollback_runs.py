"""Any one of several applied runs can be undone; the others stay, and stay undoable."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support import Death, in_child, run, snapshot
from transaction_tools import dies_at, plan_of, rewrites

from chirp_migrate.errors import JournalDamaged, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import applied_runs
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback


def three_runs(root: Path) -> list[dict[str, tuple[str, int, bytes]]]:
    """Three runs on files of their own, the second adding files below folders of the first; the tree at each point."""
    for name, content, mode in (("a.py", b"a1\n", 0o600), ("b.py", b"b1\n", 0o755), ("c.py", b"c1\n", 0o644)):
        (root / name).write_bytes(content)
        (root / name).chmod(mode)
    states = [snapshot(root, journal=False)]
    first = rewrites(root, {"a.py": b"a2\n"}).files
    commit_plan(plan_of(root, *first, FilePlan("new/deep/one.py", None, b"1\n", "scaffold")))
    states.append(snapshot(root, journal=False))
    second = rewrites(root, {"b.py": b"b2\n"}).files
    commit_plan(plan_of(root, *second, FilePlan("new/deep/two.py", None, b"2\n", "scaffold")))
    states.append(snapshot(root, journal=False))
    commit_plan(rewrites(root, {"c.py": b"c2\n"}))
    return [*states, snapshot(root, journal=False)]


def names(root: Path) -> list[str]:
    return [run.name for run in applied_runs(root)]


def undo_all(root: Path) -> None:
    for _ in names(root):
        rollback(root)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
def test_runs_on_different_files_are_undone_in_any_order(tree: Path, order: tuple[int, ...]) -> None:
    original = three_runs(tree)[0]
    standing = [1, 2, 3]
    for number in order:
        before = snapshot(tree, journal=False)
        result = rollback(tree, run=number)
        standing.remove(number)
        assert result.run == f"{number:04d}"
        assert names(tree) == [f"{one:04d}" for one in standing]
        changed = {*result.restored, *result.removed}
        after = snapshot(tree, journal=False)
        assert {path for path, one in before.items() if after.get(path) != one and one[0] == "file"} == changed
    assert snapshot(tree) == original, "folders that two runs used are gone, too"


def test_a_later_run_on_the_same_file_is_named_and_nothing_changes(tree: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tree / name).write_bytes(b"1\n")
    commit_plan(rewrites(tree, {"a.py": b"2\n", "b.py": b"2\n"}))
    commit_plan(rewrites(tree, {"c.py": b"3\n"}))
    commit_plan(rewrites(tree, {"b.py": b"4\n"}))
    left = snapshot(tree)
    for force in (False, True):
        with pytest.raises(WriteRefused, match=r"0001 .* 0003 .*b\.py.*rollback PATH") as caught:
            rollback(tree, run=1, force=force)
        assert "0002" not in str(caught.value)
        assert snapshot(tree) == left
    rollback(tree, run=3)
    rollback(tree, run=1)
    assert {path: one[2] for path, one in snapshot(tree, journal=False).items()} == {
        "a.py": b"1\n",
        "b.py": b"1\n",
        "c.py": b"3\n",
    }


def test_what_cannot_be_restored_is_known_before_anything_changes(tree: Path) -> None:
    three_runs(tree)
    (tree / "a.py").rename(tree / "mine.py")
    (tree / "a.py").symlink_to("mine.py")
    left = snapshot(tree)
    with pytest.raises(WriteRefused, match=r"a\.py is no longer a regular file"):
        rollback(tree, run=1, force=True)
    assert snapshot(tree) == left
    (tree / "mine.py").replace(tree / "a.py")
    (kept,) = (file.before.sha256 for file in applied_runs(tree)[0].files if file.before is not None)
    (tree / ".chirp-migrate" / "0001" / kept).write_bytes(b"damaged\n")
    left = snapshot(tree)
    with pytest.raises(JournalDamaged):
        rollback(tree, run=1)
    assert snapshot(tree) == left


def test_a_run_that_is_not_there_is_one_sentence(tree: Path) -> None:
    three_runs(tree)
    left = snapshot(tree)
    with pytest.raises(UsageProblem, match=r"no run 0007.*0001, 0002, 0003"):
        rollback(tree, run=7)
    assert snapshot(tree) == left


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that dies")
def test_a_middle_run_killed_while_it_is_undone_leaves_the_others(tree: Path) -> None:
    """At some moments of it: every one of a whole rollback is tried elsewhere."""
    outcomes = set()
    for moment in range(0, 60, 4):
        root = tree / str(moment)
        root.mkdir()
        original = three_runs(root)[0]
        dies_at(moment, root, lambda root=root: rollback(root, run=1))  # type: ignore[misc]
        recover(root)
        assert names(root) in (["0001", "0002", "0003"], ["0002", "0003"])
        outcomes.add(len(names(root)))
        undo_all(root)
        assert snapshot(root) == original, moment
    assert outcomes == {2, 3}


def test_the_command_lists_undoes_one_and_goes_back(tree: Path) -> None:
    states = three_runs(tree)
    (tree / "a\x1b[31m.py").write_bytes(b"1\n")
    commit_plan(rewrites(tree, {"a.py": b"a9\n", "a\x1b[31m.py": b"2\n"}))
    left = snapshot(tree)

    shown = run("rollback", "--list", tree)
    assert shown.exit_code == 0 and shown.stdout.count("rewritten") == 4
    assert "0004" in shown.stdout and "\x1b" not in shown.stdout
    assert "0004" in shown.stdout
    listed = json.loads(run("rollback", "--list", "--json", "-", tree).stdout)["runs"]
    assert [one["run"] for one in listed] == [1, 2, 3, 4]
    assert [one["undo_first"] for one in listed] == [[4], [], [], []]
    assert listed[1]["files"] == [
        {"path": "b.py", "created": False},
        {"path": "new/deep/two.py", "created": True},
    ]
    assert all(one["state"] == "applied" and one["tool"] and one["created"] for one in listed)
    assert snapshot(tree) == left

    assert run("rollback", "--run", "1", tree).exit_code == 3
    assert run("rollback", "--run", "1", "--list", tree).exit_code == 2
    assert snapshot(tree) == left
    done = run("rollback", "--run", "2", tree)
    assert done.exit_code == 0 and "Still applied: 0001, 0003, 0004" in done.stdout
    for undone in ("0004", "0003", "0001"):
        done = run("rollback", "--json", "-", tree)
        assert done.exit_code == 0 and json.loads(done.stdout)["run"] == undone
    (tree / "a\x1b[31m.py").unlink()
    assert snapshot(tree) == states[0]
    empty = run("rollback", "--list", tree)
    assert empty.exit_code == 2 and "nothing was applied" in empty.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that dies")
@pytest.mark.parametrize(
    ("named", "standing"),
    [([], ["0001", "0002", "0003"]), (["--run", "2"], ["0001", "0003"])],
)
def test_an_interrupted_run_is_listed_and_undone_before_a_run_that_is_named(
    tree: Path, named: list[str], standing: list[str]
) -> None:
    states = three_runs(tree)
    plan = rewrites(tree, {"b.py": b"b3\n"})
    assert in_child(lambda: commit_plan(plan, on_step=Death("replaced b.py"))) < 0
    left = snapshot(tree)
    assert (tree / "b.py").read_bytes() == b"b3\n"

    assert "not finished" in run("rollback", "--list", tree).stdout
    assert snapshot(tree) == left
    done = run("rollback", *named, tree)
    assert done.exit_code == 0 and "run 0004" in done.stdout
    assert names(tree) == standing
    undo_all(tree)
    assert snapshot(tree) == states[0]
