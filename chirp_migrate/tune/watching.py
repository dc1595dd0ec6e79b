"""Run the beginning of a training, record its loaders, and measure how long the training waits for each loader."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.text import format_percent, pluralize, shorten_list
from chirp_migrate.training.errors import TaskNotPossible, UserCodeError, wrap_user_code_errors
from chirp_migrate.training.watch.epoch_detector import EpochDetector, StopTraining
from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper
from chirp_migrate.training.watch.lightning_validation import let_lightning_validate_after
from chirp_migrate.training.watch.nested_datasets import nested_class_names
from chirp_migrate.tune.measured_dataset import MeasuredDataset, prepare_loader_measurement
from chirp_migrate.tune.tune_report import TrainingRun
from chirpid_patch import DataLoaderPerformanceMonitor
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading.batch_timer import BatchTimer
from chirpid_patch.thresholds import NOTICEABLE

_BATCHES, _LONG_ENOUGH_S = 8, 1.0
"""``tune`` ends an iteration over a loader after this many batches, if the iteration has taken this many seconds."""

_LONGEST_SHARE = 1 / 10
"""``tune`` ends an entry point after this share of the time, if a loader has yielded at least two batches.

An entry point whose loaders have not yielded two batches may run longer (see :mod:`.session`).
"""

_WATCHING_SHARE = 0.5
"""After this share of the time, no further entry point starts. A note in the report names the omitted entry points."""

_LEAST_S = 6.0
"""Time in seconds that the measurement of one loader needs at least. It limits how many loaders are measured."""


@dataclass
class _LoaderGroup:
    """Loaders of a training with the same classes, batch size and purpose, such as the training loaders of all folds.

    Attributes:
        loader: the first loader of the group that the training used.
        role: purpose of the loaders, ``training`` or ``validation``.
        waited_s: seconds that the training waited for batches, without the first batch of each iteration over a loader.
        whole_s: the seconds in ``waited_s``, plus the seconds of the training steps between these batches.
    """

    loader: Any
    role: str
    waited_s: float = 0.0
    whole_s: float = 0.0


class _LoaderWatch(Interception):
    """Records the loaders of a training, and how long the training waits for batches.

    The recording ends when the second epoch of the training begins, or after the time limit ``longest_s``.
    """

    def __init__(self, longest_s: float) -> None:
        super().__init__()
        self._longest_s = longest_s
        self.loaders: dict[tuple[Any, ...], _LoaderGroup] = {}
        self._pacing = EpochDetector()
        self._entered = 0.0

    def run(self, call: Callable[[], Any]) -> None:
        """Run a training call, and end the call when its loaders are known.

        Raises:
            Exception: the call raised this error.
        """
        self.cover_new_classes()
        self._pacing = EpochDetector()
        self._entered = time.perf_counter()
        with self._pacing, suppress(StopTraining):
            call()

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if self._pacing.begins_epoch(loader) and self._pacing.is_over(1):
            raise StopTraining
        dataset = getattr(loader, "dataset", None)
        role = "training" if torch.is_grad_enabled() else "validation"
        key = (role, nested_class_names(dataset), loader.batch_size, type(loader).__name__)
        known = self.loaders.setdefault(key, _LoaderGroup(loader, role))
        timer = BatchTimer()
        batches, began, is_last = 0, time.perf_counter(), False

        def around(advance: Callable[[], Any]) -> Any:
            nonlocal batches, is_last
            step_s = timer.batch_requested()
            if batches >= _BATCHES and time.perf_counter() - began > _LONG_ENOUGH_S:
                if is_last or role == "validation" or not let_lightning_validate_after(batches + 1):
                    raise StopIteration
                is_last = True
            if batches > 1 and time.perf_counter() - self._entered > self._longest_s:
                raise StopTraining
            batch = advance()
            batches += 1
            waited_s = timer.batch_arrived()
            if step_s is not None:
                known.waited_s += waited_s
                known.whole_s += step_s + waited_s
            return batch

        return LoaderIteratorWrapper(self, loader, start(), around)


def watch_loaders(
    training_calls: Mapping[str, Callable[[], Callable[[], Any]]],
    progress: Progress,
    time_limit_s: float = math.inf,
    before_entry_point: Callable[[str], None] = lambda _label: None,
) -> tuple[list[MeasuredDataset], TrainingRun, list[str]]:
    """Run training calls until their loaders have yielded some batches, and choose the loaders to measure.

    Args:
        training_calls: dictionary, label (short unique name) of an entry point (a training function or script) →
            function that prepares this entry point, and returns the call that trains.
        progress: function that is called with progress messages.
        time_limit_s: time limit in seconds for this function and the later measurement together.
        before_entry_point: function that is called before each entry point runs, with the label of the entry point.

    Returns:
        Three values: the loaders to measure, a description of the training, and notes on loaders and entry points that
        are not measured. The loader for which the training waits longest comes first.

    Raises:
        TaskNotPossible: the training took no batch from a loader that can be measured.
        UserCodeError: at least one entry point failed, and no loader was found. The error is the error of the first
            failed entry point.
    """
    watching = _LoaderWatch(_LONGEST_SHARE * time_limit_s)
    monitor = DataLoaderPerformanceMonitor()
    notes: list[str] = []
    first: UserCodeError | None = None
    began = time.perf_counter()
    with watching, monitor.watch() as usage:
        for number, (label, make) in enumerate(training_calls.items()):
            if number and time.perf_counter() - began > _WATCHING_SHARE * time_limit_s:
                notes.append(f"not started within the time budget: {shorten_list(list(training_calls)[number:], 4)}")
                break
            progress(ProgressStep(f"starting {label}", number, len(training_calls)))
            before_entry_point(label)
            try:
                with wrap_user_code_errors(label):
                    watching.run(make())
            except UserCodeError as raised:
                first = first or raised
                notes.append(f"skipped an entry point that does not train: {raised}")
                progress(f"skipped an entry point that does not train: {raised}")
    taken = time.perf_counter() - began
    if first is not None and not watching.loaders:
        raise first
    for known in watching.loaders.values():
        shut_down_workers(known.loader)  # otherwise, persistent workers would disturb the measurement
    gc.collect()
    progress(f"found {pluralize(len(watching.loaders), 'different loader')} in {taken:.0f} s")
    training = TrainingRun(taken, usage.mean_gpu_utilization, str(monitor.gpu_status()))
    subjects, more = _choose_loaders(watching, time_limit_s - taken)
    return subjects, training, notes + more


def _choose_loaders(watching: _LoaderWatch, seconds: float) -> tuple[list[MeasuredDataset], list[str]]:
    slowest_first = sorted(watching.loaders.values(), key=lambda kind: kind.waited_s, reverse=True)
    most = max(1, int(min(seconds / _LEAST_S, len(slowest_first))))
    subjects: list[MeasuredDataset] = []
    notes: list[str] = []
    for kind in slowest_first:
        name = f"{nested_class_names(kind.loader.dataset)} ({kind.role})"
        try:
            subject = prepare_loader_measurement(kind.loader, kind.role)
        except TaskNotPossible as problem:
            notes.append(f"{name} was not measured: {problem}")
            continue
        share = kind.waited_s / kind.whole_s if kind.whole_s > 0 else None
        subject.report.waited_share = share
        if subjects and share is not None and share < NOTICEABLE:
            notes.append(
                f"{name}: keep the settings, because the training waits for batches only {format_percent(share, 1)} "
                "of its time"
            )
        elif len(subjects) < most:
            subjects.append(subject)
        else:
            notes.append(f"{name} was not measured: use a longer --time-budget")
    if not subjects:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise TaskNotPossible(
            f"the training took no batch from a loader that can be measured{why}: pass a training that uses a "
            "DataLoader, or pass --dataset"
        )
    return subjects, notes
