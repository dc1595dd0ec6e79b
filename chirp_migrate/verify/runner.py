"""Run the entry points (training functions or a script) of a project, in a child process of ``verify``.

The working directory and the first import path of the child are the root of a copy of the project. The class
:class:`.JobKind` lists the tasks of the child.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import (
    NoSuchObject,
    TaskNotPossible,
    UserCodeError,
    describe_error,
    last_lines_of_traceback,
)
from chirp_migrate.training.process.imports import check_imports_use_copy
from chirp_migrate.training.process.inside_child import ParentConnection, run_child_task
from chirp_migrate.training.process.protocol import PartialResult
from chirp_migrate.training.process.snapshot import restore_files_between_runs
from chirp_migrate.training.watch.interception import Interception
from chirp_migrate.training.workload.calls import data_for_entry_points, load_model, prepare_call, seed_everything
from chirp_migrate.training.workload.data import TrainingData
from chirp_migrate.training.workload.entry_points import EntryPoint, TrainingSource, WorkloadSizes
from chirp_migrate.training.workload.hook import names_of_training_calls
from chirp_migrate.verify.equivalence.api import read_public_signatures
from chirp_migrate.verify.equivalence.fingerprint import leaf_fingerprints
from chirp_migrate.verify.equivalence.first_difference import OTHER_SEED, seed_dependent_aspects
from chirp_migrate.verify.equivalence.loader_recorder import LoaderRecorder, WorkerCountLimit
from chirp_migrate.verify.spec import REPEATED, EntryPointRecord, EntryPointTiming, JobKind, RunResult, RunSpec
from chirp_migrate.verify.timing.epochs import FOR_ALL_S, LONGEST_VISIT, EpochTimer, RepeatedBatchLoading
from chirp_migrate.verify.timing.simulate import SimulatedSteps, StandInModel

_WORKERS_END_WITHIN_S = 10.0
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


@contextmanager
def _wrap_user_errors(entry: EntryPoint, stage: str) -> Iterator[None]:
    """Return a context that raises :class:`.UserCodeError` instead of an error of the project's code.

    The message names the entry point and the stage, which is ``import``, ``training`` or ``timing``.
    """
    try:
        yield
    except NoSuchObject:
        raise
    except TaskNotPossible as error:
        raise UserCodeError(str(error)) from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".strip()
        raise UserCodeError(f"{entry.label or entry.hook} raised {text} ({stage})") from error


def run(spec: RunSpec, parent: ParentConnection) -> RunResult:
    """Perform the task that ``spec`` describes, and return its result."""
    result = RunResult()
    if spec.job is JobKind.NAMES:
        (entry,) = spec.entry_points
        with _wrap_user_errors(entry, "import"):
            result.names = names_of_training_calls(entry.hook, spec.sizes.for_warm_up())
        return result
    data = data_for_entry_points(spec.entry_points, spec.sizes.for_watched_run())
    for entry in spec.entry_points:
        if entry.source is TrainingSource.FOUND:
            with suppress(UserCodeError):  # the run of the entry point raises the same error again
                _prepare_call(spec, entry, data, spec.sizes.for_watched_run())
    gc.freeze()  # later garbage collection skips the objects that the imports created
    if spec.job is JobKind.WATCH:
        _watch_entry_points(spec, parent, data)
        if spec.api_names:
            result.api = read_public_signatures(spec.api_names)
    else:
        _time_entry_points(spec, parent, data)
    return result


def _watch_entry_points(spec: RunSpec, parent: ParentConnection, data: TrainingData) -> None:
    """Run each training briefly with two seeds, record the batches, and send the records to the parent process."""
    torch.set_num_threads(spec.watching_threads)
    sizes = spec.sizes.for_watched_run()
    for number, entry in enumerate(spec.entry_points):
        parent.wait_for_turn()
        parent.show(ProgressStep(entry.label, number, len(spec.entry_points)))
        try:
            one = _watch_entry_point(spec, entry, data, sizes)
        except UserCodeError as raised:
            one = EntryPointRecord({}, [])
            one.error, one.printed = _describe_error(spec, raised)
        else:
            with _wrap_user_errors(entry, "import"):
                check_imports_use_copy(Path(spec.tree), spec.discovery.origin)
        parent.send(PartialResult(entry.label, one))
        gc.freeze()


def _watch_entry_point(spec: RunSpec, entry: EntryPoint, data: TrainingData, sizes: WorkloadSizes) -> EntryPointRecord:
    with LoaderRecorder() as watch:
        watch.few_workers = True
        value = _run_training_call(spec, entry, data, sizes, watch)
        watch.record_more_samples()
        one = EntryPointRecord(leaf_fingerprints(value), watch.take())
        del value
        if spec.twice:
            _run_training_call(spec, entry, data, sizes, watch)
            one.again = watch.take()
        value = _run_training_call(spec, entry, data, replace(sizes, seed=sizes.seed + OTHER_SEED), watch)
        one.seeds = [
            seed_dependent_aspects(one.traces, one.fingerprint),
            seed_dependent_aspects(watch.take(), leaf_fingerprints(value)),
        ]
    return one


def _time_entry_points(spec: RunSpec, parent: ParentConnection, small: TrainingData) -> None:
    """Time each entry point (training function or script), in turns with the process of the other version.

    Before the timing, the function repeats the watched run (the short run in which ``verify`` recorded the batches) of
    each entry point in ``spec.repeats``. The repetition shows which return values are the same in every run.
    """
    parent.wait_for_turn()
    parent.send(PartialResult(REPEATED, _repeat_watched_runs(spec, small)))
    data = data_for_entry_points(spec.entry_points, spec.sizes)
    few = data_for_entry_points(spec.entry_points, spec.sizes.for_warm_up())
    options = spec.options
    cached = RepeatedBatchLoading() if spec.cached else None
    steps = SimulatedSteps(options.simulate_step_ms / 1e3) if options.simulate_step_ms else None
    own_epochs = max(1, sum(entry.own.all_epochs for entry in spec.entry_points))
    epochs = EpochTimer(parent.wait_for_turn, max(1, spec.sizes.epochs - 1), cached)
    # The order matters: the simulated steps come last, so the timer does not count them as waits for batches.
    interceptions: list[Interception] = [one for one in (cached, epochs, steps) if one is not None]
    with ExitStack() as stack:
        for interception in interceptions:
            stack.enter_context(interception)
        for entry in spec.entry_points:
            parent.wait_for_turn()
            # With more epochs than are timed, the timer ends the call before the code after the last epoch runs.
            more = 0 if entry.label in spec.whole else LONGEST_VISIT + 2
            sizes = replace(spec.sizes, epochs=spec.sizes.epochs + more)
            try:
                _warm_up(spec, entry, few)
                _ = steps.take() if steps is not None else None
                call = _prepare_call(spec, entry, data, sizes)
                for interception in interceptions:
                    interception.cover_new_classes()
                _wait_for_workers_to_end()
                seed_everything(sizes.seed)
                with _wrap_user_errors(entry, "timing"):
                    seconds = FOR_ALL_S * entry.own.all_epochs / own_epochs
                    visit = epochs.time(call, seconds, reads_memory=entry.label in spec.memory_of)
                del call
            except UserCodeError as raised:
                visit = EntryPointTiming()
                visit.error, visit.printed = _describe_error(spec, raised)
            visit.steps = steps.take() if steps is not None else None
            _wait_for_workers_to_end()
            parent.send(PartialResult(entry.label, visit))


def _repeat_watched_runs(spec: RunSpec, small: TrainingData) -> dict[str, dict[str, str]]:
    """Repeat the watched runs of the entry points in ``spec.repeats``, and return their results as text.

    A watched run is the short run in which ``verify`` recorded the batches.

    Returns:
        A dictionary: label of an entry point → result of :func:`.leaf_fingerprints`.
    """
    results = {}
    torch.set_num_threads(spec.watching_threads)
    with WorkerCountLimit() as around:
        for entry in (one for one in spec.entry_points if one.label in spec.repeats):
            value = _run_training_call(spec, entry, small, spec.sizes.for_watched_run(), around)
            results[entry.label] = leaf_fingerprints(value)
            del value
            gc.freeze()
    torch.set_num_threads(spec.threads)
    return results


def _warm_up(spec: RunSpec, entry: EntryPoint, few: TrainingData) -> None:
    """Run a training briefly before the timing, so that the timing includes no imports and no compilation."""
    if entry.source is TrainingSource.SCRIPT or entry.label in spec.repeats:
        return  # a script cannot run with fewer epochs, and a repeated run is a warm-up
    if entry is not spec.entry_points[0] and entry.label not in spec.whole:
        return  # the first epoch, which counts as start-up, is the warm-up
    with WorkerCountLimit() as around:
        _run_training_call(spec, entry, few, spec.sizes.for_warm_up(), around)
    gc.freeze()


def _describe_error(spec: RunSpec, raised: UserCodeError) -> tuple[str, str]:
    """Return an error of the project in one line, and the last lines of its traceback.

    The traceback is empty if the project called ``sys.exit``. The project has then printed the reason itself.

    Raises:
        UserCodeError: the function raises ``raised`` itself if the project's code did not cause the error. This is the
            case if the ``__cause__`` of ``raised`` is None or a :class:`.TaskNotPossible`.
    """
    error = raised.__cause__
    if error is None or isinstance(error, TaskNotPossible):
        raise raised from error
    text = describe_error(error).replace(f"{spec.tree}{os.sep}", "")
    printed = "" if isinstance(error, SystemExit) else last_lines_of_traceback(error, Path(spec.tree))
    return _ADDRESS.sub("0x…", text), printed


def _prepare_call(spec: RunSpec, entry: EntryPoint, data: TrainingData, sizes: WorkloadSizes) -> Callable[[], Any]:
    os.chdir(spec.tree)  # the previous run may have changed the working directory
    if entry.source is TrainingSource.SCRIPT:  # the previous run may have left a checkpoint
        restore_files_between_runs(Path(spec.tree))
    seed_everything(sizes.seed)  # the user's workload function may create its model here
    with _wrap_user_errors(entry, "import"):
        model = StandInModel if spec.options.simulate_step_ms else load_model(spec.discovery.model)
        return prepare_call(entry, model, data, sizes)


def _run_training_call(
    spec: RunSpec, entry: EntryPoint, data: TrainingData, sizes: WorkloadSizes, around: Interception
) -> Any:
    """Run a training call, and return its result; None for a script.

    During the call, ``around`` replaces what ``iter(loader)`` returns, for example to limit the number of workers.
    """
    call = _prepare_call(spec, entry, data, sizes)
    around.cover_new_classes()
    _wait_for_workers_to_end()
    seed_everything(sizes.seed)
    with _wrap_user_errors(entry, "training"):
        if entry.source is TrainingSource.SCRIPT:  # a script has no parameter for the number of epochs
            with EpochTimer(lambda: None, most=sizes.epochs - 1) as limit:
                limit.time(call)
            return None
        return call()


def _wait_for_workers_to_end() -> None:
    gc.collect()
    deadline = time.monotonic() + _WORKERS_END_WITHIN_S
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(run_child_task(RunSpec, run))
