"""Killed at any instant (SIGKILL before every file operation), a run is brought to an end by the next command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support import Death, snapshot
from transaction_tools import dies_at, migration, rewrites, write_tree

from chirp_migrate.errors import WriteRefused
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import applied_runs
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs real processes that share the plan")


def every_death(
    work: Path,
    prepare: Callable[[Path], None],
    action: Callable[[Path], object],
    check: Callable[[Path], None],
    every: int = 1,
) -> int:
    """Let ``action`` die at moments in fresh trees, and ``check`` what it leaves; returns the last moment."""
    for moment in count(step=every):
        root = work / "backend"
        root.mkdir()
        prepare(root)
        died = dies_at(moment, root, lambda root=root: action(root))  # type: ignore[misc]
        check(root)
        shutil.rmtree(root)
        if not died:
            return moment
    raise AssertionError("unreachable")


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_an_apply_killed_at_any_moment_is_undone_or_was_complete(tree: Path, every: int) -> None:
    reference = tree / "reference"
    reference.mkdir()
    write_tree(reference)
    before = snapshot(reference)
    commit_plan(migration(reference))
    after = snapshot(reference, journal=False)
    outcomes = set()

    def check(root: Path) -> None:
        changed = snapshot(root, journal=False) != before
        said = recover(root)
        if not applied_runs(root):
            assert snapshot(root) == before, "undone to the byte, and no journal is left"
            assert said is not None or not changed, "who undoes something says so"
            outcomes.add("undone")
        else:
            assert snapshot(root, journal=False) == after
            outcomes.add("complete")
        assert recover(root) is None

    moments = every_death(tree, write_tree, lambda root: commit_plan(migration(root)), check, every)
    assert outcomes == {"undone", "complete"}
    assert moments > 60, "the operations were not seen"


@pytest.mark.slow
@pytest.mark.parametrize("edited", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_rollback_killed_at_any_moment_is_finished_or_had_not_begun(tree: Path, edited: bool) -> None:
    reference = tree / "reference"
    reference.mkdir()
    write_tree(reference)
    before = snapshot(reference)
    outcomes = set()

    def prepare(root: Path) -> None:
        write_tree(root)
        commit_plan(migration(root))
        if edited:
            (root / "utils" / "crlf.py").write_bytes(b"mine\n")
            (root / "latin.py").unlink()

    def check(root: Path) -> None:
        recover(root)
        if applied_runs(root):
            outcomes.add("not begun")
            rollback(root, force=edited)
        else:
            outcomes.add("finished")
        assert snapshot(root) == before

    action = lambda root: rollback(root, force=edited)  # noqa: E731
    moments = every_death(tree, prepare, action, check, every=5 if edited else 1)
    assert outcomes == {"not begun", "finished"}
    assert moments > 40


@pytest.mark.slow
@pytest.mark.parametrize("half", ["apply", "rollback"])
def test_a_recovery_killed_at_any_moment_is_taken_up_again(tree: Path, half: str) -> None:
    reference = tree / "reference"
    reference.mkdir()
    write_tree(reference)
    before = snapshot(reference)

    def prepare(root: Path) -> None:
        write_tree(root)
        if half == "apply":
            action: Callable[[], object] = lambda: commit_plan(migration(root), on_step=Death("replaced latin.py"))  # noqa: E731
        else:
            commit_plan(migration(root))
            action = lambda: rollback(root, on_step=Death("replaced latin.py"))  # noqa: E731
        assert dies_at(10**9, root, action)
        assert snapshot(root, journal=False) != before

    def check(root: Path) -> None:
        recover(root)
        assert snapshot(root) == before

    assert every_death(tree, prepare, recover, check, every=3) > 20


def test_an_earlier_run_stands_when_a_later_one_is_killed(tree: Path) -> None:
    write_tree(tree)
    original = snapshot(tree)
    commit_plan(migration(tree))
    first = snapshot(tree, journal=False)
    second = rewrites(tree, {"latin.py": b"again\n", "untouched.py": b"now too\n"})
    assert dies_at(10**9, tree, lambda: commit_plan(second, on_step=Death("replaced latin.py")))
    assert (tree / "latin.py").read_bytes() == b"again\n"

    said = recover(tree)

    assert said is not None and "0002" in said and "undone" in said
    assert snapshot(tree, journal=False) == first
    run = applied_runs(tree)[-1]
    assert run.name == "0001"
    rollback(tree)
    assert snapshot(tree) == original


def test_the_next_apply_and_the_next_rollback_recover_by_themselves(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    plan = migration(tree)
    assert dies_at(10**9, tree, lambda: commit_plan(plan, on_step=Death("replaced latin.py")))
    assert commit_plan(plan).run == "0001"
    assert dies_at(10**9, tree, lambda: rollback(tree, on_step=Death("replaced latin.py")))
    assert commit_plan(plan).run == "0001"
    rollback(tree)
    assert snapshot(tree) == before


def test_work_done_after_the_kill_is_not_lost(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    plan = migration(tree)
    assert dies_at(10**9, tree, lambda: commit_plan(plan, on_step=Death("replaced latin.py")))
    (tree / "latin.py").write_bytes(b"mine\n")
    (tree / ".chirp-migrate" / "lock").unlink()  # of the dead process; the next one would take it over
    left = snapshot(tree)
    for command in (recover, rollback):
        with pytest.raises(WriteRefused, match=r"latin\.py.*rollback --force"):
            command(tree)
        assert snapshot(tree) == left, f"{command.__name__} changed something"
    assert recover(tree, force=True) is not None
    assert snapshot(tree) == before
