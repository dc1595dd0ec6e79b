"""Run ``doctor``: copy the project, record its training in a child process, and run the checks on the recordings."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from chirp_migrate import __version__
from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.text import shorten_list
from chirp_migrate.doctor.checks import find_problems
from chirp_migrate.doctor.doctor_report import DoctorReport, WatchedEntryPoint
from chirp_migrate.doctor.recording import Recording, WorkerCountTimings
from chirp_migrate.doctor.request import MEASURED, NAMES, DoctorTask
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.guard import temporary_folder
from chirp_migrate.training.process.interrupts import sigterm_as_keyboard_interrupt
from chirp_migrate.training.process.run_child import Child, ChildLabels, workload_failure
from chirp_migrate.training.process.snapshot import copy_tree
from chirp_migrate.training.workload.choosing import select_entry_points
from chirp_migrate.training.workload.entry_points import EntryPoint, TrainingSource
from chirp_migrate.verify.options import VerifyOptions, entry_points_from_options

_CHILD_LABELS = ChildLabels("The training process", "", "use a longer --time-budget")
_GRACE_S = 20.0
"""An entry point that still runs this many seconds after the end of its time counts as hung."""
_LAST_OUTPUT_S = 0.3
"""Seconds to wait for the last lines of output from a failed script."""


def run_doctor(root: Path, options: VerifyOptions, progress: Progress) -> DoctorReport:
    """Run each training for two short epochs in a copy of the project, and return the problems that occur.

    An entry point is a training function or script.

    Args:
        root: folder of the project.
        options: options that define the training to run. The option ``budget_s`` is the time budget of the whole
            command in seconds.
        progress: function that is called with progress messages.

    Raises:
        UsageProblem: no entry point is selected, or no entry point reads a batch from a PyTorch loader.
        WorkloadFailed: the user's code failed before the first entry point began. The function also raises this error
            if an entry point failed, no other entry point read a batch, and no problem was found.
    """
    ends_at = time.time() + options.budget_s
    progress(ProgressStep("finding the training and copying the project"))
    discovery = entry_points_from_options(root, root, options, "doctor")
    if options.source is not TrainingSource.HOOK:
        discovery = select_entry_points(discovery, options.select)
    with temporary_folder("chirp-migrate-doctor-") as folder:
        tree, records = folder / "tree", folder / "records"
        records.mkdir()
        notes = []
        too_large = copy_tree(root, tree)
        if too_large:
            notes.append(
                f"the temporary copy of the project lacks these files, which are too large: {', '.join(too_large)}"
            )
        progress("doctor runs the project's own code, in a temporary copy, in a separate process")
        request = DoctorTask(str(tree), discovery, str(records), ends_at, options.select, options.sizes)
        with sigterm_as_keyboard_interrupt():
            recordings, left = _TrainingRecorder(request, progress).run()
    if left:
        notes.append(
            f"these entry points did not run, because the time was over: {shorten_list(left, 4)} (use a longer "
            "--time-budget)"
        )
    return _report(recordings, notes)


class _TrainingRecorder:
    """Runs the entry points (training functions or scripts) in a child process.

    If the child crashes, a new child runs the remaining entry points.
    """

    def __init__(self, request: DoctorTask, progress: Progress) -> None:
        self._request, self._progress = request, progress
        self._left: list[EntryPoint] = list(request.discovery.entry_points)
        self._recordings: list[Recording] = []

    def run(self) -> tuple[list[Recording], list[str]]:
        """Run the entry points; return the recordings, and the labels of entry points for which no time was left.

        Raises:
            WorkloadFailed: the child process ended before the first entry point began.
        """
        while self._left and (not self._recordings or time.time() < self._request.ends_at):
            self._run_child()
        return self._recordings, [one.label for one in self._left]

    def _run_child(self) -> None:
        request = replace(self._request, discovery=replace(self._request.discovery, entry_points=tuple(self._left)))
        self._progress(ProgressStep("importing the training"))
        with Child(
            "chirp_migrate.doctor.runner",
            request,
            dict,
            _CHILD_LABELS,
            request.ends_at - time.time() + _GRACE_S,
            progress=self._progress,
        ) as child:
            began = is_measuring = False
            try:
                child.wait_until_ready()
                self._store_results(child)
                while child.is_waiting and (not self._recordings or time.time() < request.ends_at):
                    began, is_measuring = True, not self._left
                    left_s = max(0.0, request.ends_at - time.time()) / max(1, len(self._left))
                    child.give_turn(left_s + _GRACE_S)
                    child.wait_until_ready()
                    self._store_results(child)
                if not child.is_waiting:
                    child.result()
            except WorkloadFailed as failed:
                self._store_results(child)
                if not began or not failed.ending:
                    raise
                if not self._left:
                    if is_measuring:
                        self._progress(f"the best number of workers was not measured: the process {failed.ending}")
                    return
                entry, longer = self._left.pop(0), " (use a longer --time-budget)" if failed.hung else ""
                ending = f"the process {failed.ending}{longer}"
                self._recordings.append(Recording(entry.label, error=ending, printed=failed.shown_tail))

    def _store_results(self, child: Child[dict[str, str]]) -> None:
        for part in child.found:
            if part.name == NAMES:
                self._left = [replace(self._left[0], name=name) for name in part.value]
                continue
            if part.name.startswith(MEASURED):
                label = part.name.removeprefix(MEASURED)
                slow = next(one for one in self._recordings if one.label == label)
                slow.tuned = msgspec.convert(part.value, WorkerCountTimings)
                continue
            recording = msgspec.convert(part.value, Recording, str_keys=True)
            if recording.error and not recording.printed:
                time.sleep(_LAST_OUTPUT_S)
                recording.printed = child.printed
            self._recordings.append(recording)
            self._left.pop(0)
        child.found.clear()


def _report(recordings: list[Recording], notes: list[str]) -> DoctorReport:
    problems = find_problems(recordings)
    failed = next((one for one in recordings if one.error), None)
    if not problems and not any(each.sizes for one in recordings if not one.error for each in one.passes):
        if failed is not None:
            raise workload_failure(f"{failed.label} failed: {failed.error}.", failed.printed)
        longer = any(one.is_cut for one in recordings)
        change = "use a longer --time-budget" if longer else "pass a script that trains"
        raise UsageProblem(f"the training read no batch from a PyTorch loader, so nothing was checked: {change}.")
    cut = [one.label for one in recordings if one.is_cut]
    if cut:
        notes.append(
            f"these entry points ended before two epochs were over: {shorten_list(cut, 4)} (use a longer --time-budget)"
        )
    watched = [
        WatchedEntryPoint(
            label=one.label,
            seconds=one.seconds,
            loaders=len(one.loaders),
            passes=len(one.passes),
            batches=sum(len(each.sizes) for each in one.passes),
            error=one.error,
            printed=one.printed,
        )
        for one in recordings
    ]
    return DoctorReport(
        tool=f"chirp-migrate {__version__}",
        problems=problems,
        entry_points=watched,
        notes=notes,
        exit_code=int(ExitCode.WORK_REMAINS if problems else ExitCode.OK),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
