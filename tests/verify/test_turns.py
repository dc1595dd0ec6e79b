"""Two children start beside each other, and do what is timed one after the other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.handshake import Turns
from chirp_migrate.training.workload.entry_points import Sizes, discover
from chirp_migrate.verify.spec import Mode, RunSpec
from chirp_migrate.verify.timing.process import Child


def spec(tree: Path, output: Path) -> RunSpec:
    found = discover(tree)
    sizes = Sizes(samples=60, shape=(1, 12, 10), epochs=1, batch_size=16)
    return RunSpec(str(tree), str(output), found.entry_points, found.model, sizes, 1, (Mode.TIMED,), {})


@pytest.mark.slow
def test_each_waits_for_its_turn(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    outputs = {side: tmp_path / f"{side}.json" for side in ("before", "after")}
    children = {
        side: Child(spec(write_backend(side), output), side, tmp_path / f"run-{side}", 120.0)
        for side, output in outputs.items()
    }
    with children["before"] as before, children["after"] as after:
        before.wait_until_ready()
        after.wait_until_ready()
        assert min(before.cpu_s, after.cpu_s) > 0.3, "both have imported PyTorch"
        assert not outputs["before"].exists()
        assert after.result().modes[Mode.TIMED]
        time.sleep(0.2)
        assert not outputs["before"].exists(), "it is not its turn yet"
        assert before.result().modes[Mode.TIMED]


@pytest.mark.slow
def test_each_entry_point_trains_in_turns_of_its_own(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    wanted = replace(
        spec(write_backend("after"), tmp_path / "out.json"), modes=(Mode.TIMED, Mode.CACHED), by_entry=True
    )
    used = []
    with Child(wanted, "after", tmp_path / "run", 120.0) as child:
        child.wait_until_ready()
        child.take_turn()  # warming up
        while child.cpu_s:
            used.append(child.cpu_s)
            assert not (tmp_path / "out.json").exists()
            child.take_turn()
        found = child.result()
    assert len(used) == 2 * len(wanted.entry_points)
    assert used == sorted(used)
    assert all(list(found.modes[mode]) == [each.label for each in wanted.entry_points] for mode in wanted.modes)


@pytest.mark.slow
def test_one_that_fails_while_it_starts_says_so_when_asked(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    tree = write_backend("before")
    wanted = spec(tree, tmp_path / "out.json")
    (tree / "utils" / "models.py").write_text("raise OSError('no such microphone')\n")
    with Child(wanted, "before", tmp_path / "run", 120.0) as child:
        child.wait_until_ready()
        with pytest.raises(WorkloadFailed, match="no such microphone"):
            child.result()


def test_a_child_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    waiting = f"""
from pathlib import Path
from chirp_migrate.training.process.handshake import Turns
try:
    Turns(Path({str(tmp_path)!r})).take()
finally:
    Path({str(tmp_path / "ended")!r}).touch()
"""
    starting = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {waiting!r}]).wait()"
    parent = subprocess.Popen([sys.executable, "-c", starting])
    turns = Turns(tmp_path)
    while turns.ready() is None:
        assert parent.poll() is None
        time.sleep(0.02)
    assert not (tmp_path / "ended").exists()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < deadline, "it still waits for its turn"
        time.sleep(0.02)
