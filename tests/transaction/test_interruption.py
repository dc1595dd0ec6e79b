"""Killed at any step, the next command finds it, and the tree is the one from before or the one from after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trees import is_migrated, listing, make_tree, without_journal

from chirp_migrate.commit import commit, recover
from chirp_migrate.errors import Refused
from chirp_migrate.journal import journal_folder, read_runs
from chirp_migrate.record import State
from chirp_migrate.rollback import rollback

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked copies of this process")


def killed_at(number: int, action: object) -> bool:
    """Run ``action(on_step)`` in a fork that kills itself after step ``number``; false when it got through."""
    child = os.fork()
    if child == 0:
        steps = iter(range(1_000_000))

        def on_step(step: str) -> None:
            if next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            action(on_step)  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def test_an_apply_killed_at_any_step_is_undone(tmp_path: Path) -> None:
    for number in range(1_000):
        root = tmp_path / str(number)
        root.mkdir()
        plan = make_tree(root)
        before = listing(root)
        if not killed_at(number, lambda on_step, plan=plan: commit(plan, on_step=on_step)):
            break
        was_recorded = bool(read_runs(root))
        said = recover(root)
        assert not read_runs(root)
        if was_recorded:
            assert said is not None and "undone" in said
        assert listing(root) == before, number
        assert recover(root) is None
    assert number > 20
    assert is_migrated(root)  # the one that got through
    assert [run.state for run in read_runs(root)] == [State.APPLIED]


def test_the_next_apply_undoes_a_killed_one_and_does_its_own_work(tmp_path: Path) -> None:
    plan = make_tree(tmp_path)
    before = listing(tmp_path)
    assert killed_at(25, lambda on_step: commit(plan, on_step=on_step))
    assert read_runs(tmp_path)[0].state is State.PENDING
    commit(plan)
    assert is_migrated(tmp_path)
    rollback(tmp_path)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_a_rollback_killed_at_any_step_is_finished(tmp_path: Path, force: bool) -> None:
    recorded = 0
    for number in range(1_000):
        root = tmp_path / str(number)
        root.mkdir()
        plan = make_tree(root)
        before = listing(root)
        commit(plan)
        if force:
            (root / "utils" / "run.py").write_bytes(b"mine\n")
            (root / "latin.py").unlink()
        if not killed_at(number, lambda on_step, root=root: rollback(root, force=force, on_step=on_step)):
            break
        recorded += recover(root) is not None
        assert listing(root) == before, number
    assert number > 10
    assert recorded == number


def test_a_recovery_that_is_killed_can_be_repeated(tmp_path: Path) -> None:
    steps: list[str] = []
    first = tmp_path / "first"
    first.mkdir()
    commit(make_tree(first), on_step=steps.append)
    last_step = max(number for number, step in enumerate(steps) if step.startswith("replaced"))
    for number in range(1_000):
        root = tmp_path / str(number)
        root.mkdir()
        plan = make_tree(root)
        before = listing(root)
        # All files are replaced, and the record is not yet sealed: there is the most to do.
        assert killed_at(last_step, lambda on_step, plan=plan: commit(plan, on_step=on_step))
        assert [run.state for run in read_runs(root)] == [State.PENDING]
        got_through = not killed_at(number, lambda on_step, root=root: recover(root, on_step=on_step))
        recover(root)
        assert listing(root) == before, number
        if got_through:
            break
    assert number > 5


def test_an_edit_after_the_interruption_is_not_lost(tmp_path: Path) -> None:
    plan = make_tree(tmp_path)
    before = listing(tmp_path)
    assert killed_at(25, lambda on_step: commit(plan, on_step=on_step))
    (tmp_path / "latin.py").write_bytes(b"mine\n")
    edited = without_journal(tmp_path)
    for command in (lambda: recover(tmp_path), lambda: commit(plan), lambda: rollback(tmp_path)):
        with pytest.raises(Refused, match=r"latin\.py"):
            command()
        assert without_journal(tmp_path) == edited
    recover(tmp_path, force=True)
    assert listing(tmp_path) == before


def test_a_second_run_says_who_is_at_work_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    plan = make_tree(tmp_path)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from chirp_migrate.journal import journal_folder\nfrom chirp_migrate.lock import hold\n"
        "with hold(journal_folder(Path(sys.argv[1]))):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        for command in (lambda: commit(plan), lambda: rollback(tmp_path), lambda: recover(tmp_path)):
            with pytest.raises(Refused, match=rf"process {other.pid}\b"):
                command()
        assert (journal_folder(tmp_path) / "lock").exists()
    finally:
        other.kill()
        other.communicate()
    commit(plan)
    assert is_migrated(tmp_path)
