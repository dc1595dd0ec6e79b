"""Run and record the user's trainings in a child process of ``doctor``; send the recordings to the parent process."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.doctor.checks.waiting import loaders_needing_workers
from chirp_migrate.doctor.measuring import measure_worker_counts
from chirp_migrate.doctor.recording import LoaderPass, Recording
from chirp_migrate.doctor.request import MEASURED, NAMES, DoctorTask
from chirp_migrate.doctor.watch.training import record_training
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import (
    NoSuchObject,
    TaskNotPossible,
    describe_error,
    first_message_line,
    last_lines_of_traceback,
    wrap_user_code_errors,
)
from chirp_migrate.training.process.imports import check_imports_use_copy
from chirp_migrate.training.process.inside_child import ParentConnection, run_child_task
from chirp_migrate.training.process.protocol import PartialResult
from chirp_migrate.training.workload.calls import data_for_entry_points, load_model, prepare_call, seed_everything
from chirp_migrate.training.workload.choosing import select_entry_points
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, TrainingSource
from chirp_migrate.training.workload.hook import names_of_training_calls

_SEED = 435
_HEADER = "Traceback (most recent call last):\n"
_LEAST_S = 2.0
_LONGEST_MEASUREMENT_S = 30.0


def run(request: DoctorTask, parent: ParentConnection) -> dict[str, str]:
    """Run each entry point (training function or script), and send its recording to the parent process.

    If time remains at the end, the function measures the loading time of one loader with different numbers of workers.
    This is the loader for which the training waited the largest share of an epoch.

    The result is empty, because each recording is sent as soon as its entry point has run.

    Raises:
        TaskNotPossible: no entry point is selected, or the user's code imported the original project instead of its
            temporary copy.
        UserCodeError: the user's code raised an error before the first entry point began.
    """
    entries = request.discovery.entry_points
    if entries[0].source is TrainingSource.HOOK and not entries[0].name:
        with wrap_user_code_errors(entries[0].hook):
            names = names_of_training_calls(entries[0].hook, request.sizes)
        entries = _select_calls(
            replace(request.discovery, entry_points=tuple(replace(entries[0], name=n) for n in names)), request.select
        )
        parent.send(PartialResult(NAMES, [entry.name for entry in entries]))
    # Entry points that doctor finds automatically train on synthetic samples. A few samples show how loaders behave.
    is_found = entries[0].source is TrainingSource.FOUND
    sizes = request.sizes.for_watched_run() if is_found else request.sizes
    with wrap_user_code_errors("the model"):
        model = load_model(request.discovery.model)
    data = data_for_entry_points(entries, sizes)
    slowest: _SlowLoader | None = None
    for number, entry in enumerate(entries):
        parent.wait_for_turn()
        parent.show(ProgressStep(entry.label, number, len(entries)))
        seconds = max(_LEAST_S, (request.ends_at - time.time()) / (len(entries) - number))
        recording = Recording(entry.label, has_own_data=not is_found or request.sizes.data is not None)
        tree, records = Path(request.tree).resolve(), Path(request.records)
        os.chdir(request.tree)  # the previous entry point may have changed the working directory
        try:
            loaders = _train(entry, model, data, sizes, (tree, records, seconds, recording))
            slowest = _choose_slowest(slowest, recording, loaders)
            del loaders
        except NoSuchObject:
            raise
        except SystemExit as ended:  # the script called sys.exit, possibly with an error message
            has_text = isinstance(ended.code, str)
            recording.error = first_message_line(ended) if has_text else f"exit code {ended.code or 0}"
        except (Exception, KeyboardInterrupt) as error:
            recording.error = describe_error(error).replace(f"{tree}{os.sep}", "")
            if recording.is_shortened:
                recording.error += " (doctor ended an epoch early, which may be the cause: use a longer --time-budget)"
            recording.printed = last_lines_of_traceback(error, tree).removeprefix(_HEADER)
        check_imports_use_copy(tree, request.discovery.origin)
        parent.send(PartialResult(entry.label, recording))
        gc.collect()
    if slowest is not None:
        parent.wait_for_turn()
        _measure(slowest, min(_LONGEST_MEASUREMENT_S, request.ends_at - time.time()), parent)
    return {}


class _SlowLoader(NamedTuple):
    """A loader for which a training waited, the recorded iteration with the wait, and the seconds to read a batch."""

    label: str
    loader: Any
    seen: LoaderPass
    batch_s: float


def _choose_slowest(slowest: _SlowLoader | None, recording: Recording, loaders: list[Any]) -> _SlowLoader | None:
    """Return ``slowest``, or a loader of ``recording`` for which the training waited a larger share of an epoch."""
    for info, one in loaders_needing_workers(recording):
        tasks = recording.tasks_of(one)
        if tasks and (slowest is None or one.waited_share > slowest.seen.waited_share):
            batch_s = sum(task.seconds for task in tasks) / len(tasks)
            slowest = _SlowLoader(recording.label, loaders[info.number], one, batch_s)
    return slowest


def _measure(slow: _SlowLoader, seconds: float, parent: ParentConnection) -> None:
    """Measure the loading time of a loader with different numbers of workers.

    If the result shows which number is best, the function sends the result to the parent process.
    """
    parent.show(ProgressStep(f"measuring the best number of workers for {slow.label}", most_s=seconds))
    seed_everything(_SEED)
    try:
        tuned = measure_worker_counts(slow.loader, slow.seen, slow.batch_s, seconds, lambda _what: None)
    except Exception as error:  # the user's code may be unable to read its data again
        parent.show(f"the best number of workers for {slow.label} was not measured: {first_message_line(error)}")
        return
    if tuned is not None:
        parent.send(PartialResult(MEASURED + slow.label, tuned))


def _select_calls(discovery: DiscoveredEntryPoints, expression: str | None) -> tuple[EntryPoint, ...]:
    try:
        return select_entry_points(discovery, expression).entry_points
    except UsageProblem as problem:
        raise TaskNotPossible(str(problem)) from None


def _train(
    entry: EntryPoint, model: Any, data: Any, sizes: Any, watch: tuple[Path, Path, float, Recording]
) -> list[Any]:
    seed_everything(_SEED)
    call = prepare_call(entry, model, data, sizes)
    return record_training(call, *watch)


def _exit(status: int) -> NoReturn:
    """End this process with an exit code, even if threads of the training still run."""
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    _exit(run_child_task(DoctorTask, run))
