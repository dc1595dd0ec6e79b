"""Run ``tune``: start a child process that measures loader settings, and return its results."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.engine.discover import discover_files as python_files
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.guard import temporary_folder
from chirp_migrate.training.process.interrupts import sigterm_as_keyboard_interrupt
from chirp_migrate.training.process.run_child import Child, ChildLabels
from chirp_migrate.training.process.snapshot import copy_tree
from chirp_migrate.tune.request import TuneTask
from chirp_migrate.tune.tune_report import TuneReport
from chirp_migrate.verify.options import VerifyOptions, entry_points_from_options

_ENTERING_SHARE, _LEAST_ENTERING_S = 1 / 4, 5.0
"""Longest time that one of several entry points may take to load its first batches: a share of the remaining time.

An entry point may always take at least the second value, in seconds.
"""

_ROLE = ChildLabels(
    "The process that measures",
    "",
    "raise --timeout, lower --time-budget, or pass fewer values to --num-workers",
)


def tune_project(request: TuneTask, training: VerifyOptions | None, timeout_s: float, progress: Progress) -> TuneReport:
    """Run the user's code in a separate process, and measure loader settings for its datasets.

    A training may write files, so the training runs in a temporary copy of the project. If the user names a dataset
    instead of a training, the code runs in the original folder, because a copy may lack the files of the dataset.

    Args:
        request: the task for the child process, with the folder of the project as ``tree``.
        training: options of the training whose loaders are measured; None if ``request`` names a dataset or a
            configuration file instead.
        timeout_s: time limit in seconds for the start of the process, for each entry point, and for the measurement. A
            process that takes longer counts as hung.
        progress: function that is called with progress messages.

    Raises:
        UsageProblem: the requested dataset or training cannot be measured.
        WorkloadFailed: the user's code raised an error, crashed or hung.
    """
    root = Path(request.tree)
    request = replace(request, ends_at=time.time() + request.grid.seconds)
    with temporary_folder("chirp-migrate-tune-") as folder:
        if training is None:
            request = replace(request, uses_runtime=_uses_runtime(root))
        else:
            request = _prepare_training_task(request, training, folder / "tree", progress)
        place = "a temporary copy" if request.discovery else str(root)
        progress(f"tune runs your own code, in {place}, in a separate process")
        progress(ProgressStep("starting the process that measures"))
        with sigterm_as_keyboard_interrupt():
            return _run_measurement(request, timeout_s, progress)


def _run_measurement(request: TuneTask, timeout_s: float, progress: Progress) -> TuneReport:
    """Run the child process.

    If an entry point (training function or script) crashes or hangs, start a new process without this entry point.
    """
    while True:
        with Child("chirp_migrate.tune.runner", request, TuneReport, _ROLE, timeout_s, progress=progress) as child:
            try:
                child.wait_until_ready()
                while child.is_waiting and child.found[-1].name:
                    child.give_turn(_entry_point_limit_s(request, timeout_s) if child.found[-1].value else timeout_s)
                    child.wait_until_ready()
                if child.is_waiting:
                    child.give_turn(timeout_s)
                return child.result()
            except WorkloadFailed as failed:
                label, others = (child.found[-1].name, child.found[-1].value) if child.found else ("", 0)
                if not (failed.ending and label and others):
                    raise
                progress(f"skipped an entry point that does not train: {label} {failed.ending}")
                request = replace(request, lost={**request.lost, label: failed.ending})


def _entry_point_limit_s(request: TuneTask, timeout_s: float) -> float:
    """Return the time limit in seconds for an entry point, which only runs until its loaders have yielded batches."""
    left_s = (request.ends_at or math.inf) - time.time()
    return min(timeout_s, max(_LEAST_ENTERING_S, _ENTERING_SHARE * left_s))


def _prepare_training_task(request: TuneTask, options: VerifyOptions, tree: Path, progress: Progress) -> TuneTask:
    """Copy the project to ``tree``, and return the task for the training in this copy."""
    root = Path(request.tree)
    progress(ProgressStep("finding the training, and copying the project"))
    discovery = entry_points_from_options(root, root, options, "tune")
    too_large = copy_tree(root, tree)
    if too_large:
        progress(f"too large, so not copied: {', '.join(too_large)} (with --dataset, tune copies no files)")
    return replace(request, tree=str(tree), discovery=discovery, sizes=options.sizes)


def _uses_runtime(root: Path) -> bool:
    """Return whether a Python file of the project contains the name ``chirpid_patch``."""
    return any(b"chirpid_patch" in (root / name).read_bytes() for name in python_files(root, notebooks=False).files)
