"""Whole verifications of a tiny backend in real processes. No test depends on which side is faster."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chirp_migrate.console.json_document import read_document, to_json_bytes
from chirp_migrate.console.progress import Progress, ProgressStep, ignore_progress
from chirp_migrate.console.screen import render_to_text
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.run_child import Child
from chirp_migrate.training.workload.entry_points import WorkloadSizes, find_entry_points
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.session import run_all_processes
from chirp_migrate.verify.spec import JobKind, RunResult, RunSpec
from chirp_migrate.verify.timing.process_turns import make_child_process
from chirp_migrate.verify.verdict import Verdict
from chirp_migrate.verify.verify_report import VerifyReport

SIZES = WorkloadSizes(samples=60, shape=(1, 12, 10), epochs=2, batch_size=16)
SINGLE = "training_utils.single_fold_training_with_predefined_split"
AUGMENTED = "training_utils.fast_single_fold_training_with_augmentation"
ROUNDS = 3


def settings(timeout_s: float = 120.0, rounds: int = ROUNDS) -> VerifyOptions:
    return VerifyOptions(SIZES, max_rounds=rounds, budget_s=600.0, threads=1, timeout_s=timeout_s)


def verified(before: Path, after: Path, progress: Progress = ignore_progress, **options: Any) -> VerifyReport:
    trees = {"before": before, "after": after}
    return run_all_processes(trees, find_entry_points(before), settings(**options), progress, time.monotonic() + 600)


def shown(report: VerifyReport) -> str:
    """What `verify -v` prints, as one line."""
    return " ".join(render_to_text(lambda screen: show_verify_report(report, screen), 100, verbose=True).split())


def plant_a_slow_import(root: Path, marks: Path) -> None:
    """Have training import, when it first runs in a process, a module that takes 2 s (and leaves a mark)."""
    (root / "utils" / "slow.py").write_text(
        f"import time\ntime.sleep(2)\nwith open({str(marks)!r}, 'a') as file:\n    file.write('imported\\n')\n"
    )
    training = root / "utils" / "training_utils.py"
    training.write_text(training.read_text().replace("    history = {", "    import utils.slow\n    history = {"))


@pytest.mark.slow
def test_identical_trees_train_the_same_and_everything_is_reported(
    write_backend: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = write_backend("before"), write_backend("after")
    plant_a_slow_import(after, tmp_path / "marks")
    files = sorted(before.rglob("*")), sorted(after.rglob("*"))
    started: list[RunSpec] = []

    def noted(spec: RunSpec, side: str, progress: Progress) -> Child[RunResult]:
        started.append(spec)
        return make_child_process(spec, side, progress)

    monkeypatch.setattr("chirp_migrate.verify.timing.process_turns.make_child_process", noted)
    reported: list[str | ProgressStep] = []
    report = verified(before, after, progress=reported.append)

    steps = [step for step in reported if isinstance(step, ProgressStep)]
    assert {(step.done, step.total) for step in steps if step.text.startswith("recording what")} >= {(0, 2), (1, 2)}
    rounds = {(step.text[:8], step.done, step.total) for step in steps if re.match(r"round \d: \w+\.", step.text)}
    assert rounds == {(f"round {number + 1}:", done, 2) for number in range(ROUNDS) for done in range(2)}

    jobs = [spec.job for spec in started]
    assert jobs == [JobKind.WATCH] * 2 + [JobKind.TIME] * 2 * ROUNDS
    imported = (tmp_path / "marks").read_text().count("imported")
    assert imported == 1 + ROUNDS, "once in each process of the side after"
    for side in ("after", "cached"):
        # The entry point that meets the import first trains for milliseconds; stalls may hit a round, not every one.
        assert min(visit.start_s for each in report.rounds.made for visit in each.visits["after"].values()) < 2
        assert len(report.rounds.seconds(side, SINGLE)) == ROUNDS
    timed = [[entry.name for entry in spec.entry_points] for spec in started if spec.job is JobKind.TIME]
    assert timed[::2] == timed[1::2], "both sides train in the same order"

    assert report.workload is not None and report.workload.entry_points == [SINGLE, AUGMENTED]
    assert report.differences == []
    assert set(report.smallest_adjusted_p) == {AUGMENTED}
    assert report.detectable_changes.keys() == {AUGMENTED} and 0.1 < report.detectable_changes[AUGMENTED] < 0.2
    statistics = [row for trace in report.passes["after"][AUGMENTED] for row in trace.statistics]
    assert len(statistics) >= 500
    assert any("['seconds']" in note for note in report.notes), "a clock's value is no result"
    of_rounds = [times.values() for each in report.rounds.made for times in each.seconds.values()]
    assert all(seconds > 0 for times in of_rounds for seconds in times)
    own = report.own_runs[SINGLE]
    assert (own.epochs, own.folds, own.assumed) == (250, 1, False)
    assert sum(len(each.visits["before"][SINGLE].epochs_s) for each in report.rounds.made) >= ROUNDS
    assert all(own.epoch_s[side] > 0 and own.start_s[side] >= 0 for side in ("before", "after"))
    assert report.spent_s["watching"] > 0 and report.spent_s["later epochs"] > 0
    passes = report.passes["before"][SINGLE]
    assert [(p.role, p.samples) for p in passes] == [("train", 38), ("validation", 14)] * 2
    assert report.verdict not in (Verdict.NOT_EQUIVALENT.text, Verdict.FAILED.text)
    text = shown(report)
    assert text.startswith(f"Verdict: {report.verdict}. ")
    assert "1 entry point is equal to the last bit" in text and "smallest adjusted p" in text
    assert "zero-cost loading" in text and "Rounds: " in text and "1 x 250" in text and "Time spent on: " in text
    assert read_document(to_json_bytes(report, indent=None), VerifyReport) == report
    assert len(report.rounds.made) == ROUNDS
    assert report.rounds.ended_with in ("all rounds made", "every question answered")
    assert report.verdicts[SINGLE].zero_cost_ratio is not None
    assert report.exit_code == next(each.exit_code for each in Verdict if each.text == report.verdict)
    assert (sorted(before.rglob("*")), sorted(after.rglob("*"))) == files, "nothing is left in the trees"


@pytest.mark.exhaustive  # test_cheats.py compares what does not repeat by its distribution, too
@pytest.mark.slow
def test_on_a_gpu_what_does_not_repeat_before_is_compared_by_its_distribution(
    write_backend: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in: the processes train on the CPU, with losses that never repeat."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "stand-in")
    times = "(1 + time.time_ns() % 97 * 1e-6)"
    vary = ("criterion(model(x), y)\n            model", f"criterion(model(x) * {times}, y)\n            model")
    tree = write_backend("backend", vary)
    report = verified(tree, tree, rounds=1)
    assert report.differences == []
    assert set(report.unrepeatable) == {SINGLE, AUGMENTED}
    monkeypatch.undo()
    assert f"{SINGLE} (not repeatable)" in shown(report)


def test_a_cheat_is_named_and_nothing_is_timed(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    before = write_backend("before")
    after = write_backend("after", ("shuffle=True)", "shuffle=True, drop_last=True)"))

    report = verified(before, after)

    message = f"{SINGLE}: train pass 1: 38 samples before, 32 after"
    assert any(difference.message.startswith(message) for difference in report.differences)
    assert report.rounds.made == []
    assert report.verdict == Verdict.NOT_EQUIVALENT.text
    text = shown(report)
    assert "38 samples before, 32 after" in text and "38>32" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, reason, tail",
    [
        ("raise ValueError('no such bird')", "raised ValueError: no such bird", "Traceback"),
        pytest.param(
            *("import a_module_that_is_missing", "a_module_that_is_missing", "ModuleNotFoundError"),
            marks=pytest.mark.exhaustive,  # test_failing_trees.py imports another
        ),
        pytest.param("raise SystemExit(0)", "raised SystemExit", "", marks=pytest.mark.exhaustive),
        pytest.param(
            "import os; print('last words', flush=True); os._exit(7)",
            "exit code 7 and returned no result",
            "last words",
            marks=pytest.mark.exhaustive,  # test_failing_trees.py has last words, and such an end
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV", ""),
    ],
)
def test_a_crash_is_a_failure_with_its_reason(
    write_backend: Callable[..., Path], tmp_path: Path, code: str, reason: str, tail: str
) -> None:
    broken = write_backend("broken", ("total = 0.0", f"total = 0.0\n        {code}"))
    with pytest.raises(WorkloadFailed, match="in the version before the migration") as failed:
        verified(broken, broken)
    assert reason in str(failed.value)
    assert tail in failed.value.log_tail


@pytest.mark.slow
def test_a_hanging_backend_is_ended_with_everything_it_started(
    write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    hang = (
        "import subprocess; child = subprocess.Popen(['sleep', '1000']); "
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); child.wait()"
    )
    root = write_backend("hanging", ("total = 0.0", f"total = 0.0\n        {hang}"))
    with pytest.raises(WorkloadFailed, match="did not end within"):
        verified(root, root, timeout_s=5.0)
    if pid_file.exists():  # a machine too slow to get there in time has nothing left to end
        with pytest.raises(ProcessLookupError):
            _wait_gone(int(pid_file.read_text()))


@pytest.mark.slow
def test_a_child_killed_at_its_limit_behind_a_complete_message_was_too_slow(
    monkeypatch: pytest.MonkeyPatch, write_backend: Callable[..., Path]
) -> None:
    class PassedLimit(threading.Timer):
        def start(self) -> None:
            self.function(*self.args, **self.kwargs)

    monkeypatch.setattr(threading, "Timer", PassedLimit)
    root = write_backend("slow")
    with pytest.raises(WorkloadFailed, match="did not end within"):
        verified(root, root, timeout_s=60.0)


def _wait_gone(pid: int) -> None:
    """Raise ProcessLookupError once the process is gone; the process that adopted it may take a moment to reap it."""
    for _ in range(200):
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError(pid)
        os.kill(pid, 0)
        os.sched_yield()
