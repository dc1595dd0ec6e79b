"""The loaders that a training makes, and how long it waits for each: the training is run once and watched."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from chirp_migrate.console.progress import Progress, Step
from chirp_migrate.training.errors import NotUsable
from chirp_migrate.training.watch.interception import Interception, PassingIterator
from chirp_migrate.training.watch.samples import described
from chirp_migrate.tune.document import Training
from chirp_migrate.tune.subject import Subject, of_loader
from chirpid_patch import DataLoaderPerformanceMonitor
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading.batch_timer import BatchTimer

__all__ = ["watched"]

_MOST_LOADERS = 3
_WORTH_WAITING = 0.05
"""Loaders that took a smaller share of all the waiting than this are not measured."""


@dataclass
class _Loader:
    """All loaders with the same kind of dataset, batches and role, such as those of the folds.

    Waits and periods (from batch to batch, the training's step included) are in seconds; the first batch of each walk
    is left out of both: it is start-up.
    """

    loader: Any
    role: str
    waited_s: float = 0.0
    whole_s: float = 0.0


class _Watching(Interception):
    """Sees what loaders a training makes, and how long it waits for them."""

    def __init__(self) -> None:
        super().__init__(self._watch)
        self.loaders: dict[tuple[Any, ...], _Loader] = {}

    def _watch(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        dataset = getattr(loader, "dataset", None)
        role = "training" if torch.is_grad_enabled() else "validation"
        key = (role, described(dataset), loader.batch_size, type(loader).__name__)
        known = self.loaders.setdefault(key, _Loader(loader, role))
        timer = BatchTimer()

        def around(advance: Callable[[], Any]) -> Any:
            step_s = timer.ask()
            batch = advance()
            waited_s = timer.arrive()
            if step_s is not None:
                known.waited_s += waited_s
                known.whole_s += step_s + waited_s
            return batch

        return PassingIterator(self, loader, start(), around)


def watched(
    calls: Sequence[Callable[[], Any]], show: Progress, later_s: float = 0.0
) -> tuple[list[Subject], Training, list[str]]:
    """Run training calls, and give the loaders that are worth measuring, slowest first.

    What comes after it takes ``later_s`` seconds, at most.

    Returns:
        The loaders, what the training took, and notes on those left out.

    Raises:
        NotUsable: the training took no batch from a loader that can be measured.
        Exception: what a call raises.
    """
    watching = _Watching()
    monitor = DataLoaderPerformanceMonitor()
    began = time.perf_counter()
    with watching, monitor.watch() as usage:
        left_s = None
        for number, call in enumerate(calls):
            most_s = None if left_s is None else left_s + later_s
            show(Step("watching the training", number, len(calls), left_s, most_s))
            watching.cover_new_classes()
            call()
            taken = time.perf_counter() - began
            left_s = taken / (number + 1) * (len(calls) - number - 1)
            ahead = f"; watching the others will take about {left_s:.0f} s" if left_s >= 1 else ""
            if ahead and number == 0:
                ahead += " beside the time budget (--dataset measures one without it)"
            show(f"watched training call {number + 1} of {len(calls)} in {taken:.0f} s{ahead}")
    seconds = time.perf_counter() - began
    for known in watching.loaders.values():
        shut_down_workers(known.loader)  # persistent ones would stay beside what is measured next (trap 13)
    gc.collect()
    training = Training(seconds, usage.mean_gpu_utilization, str(monitor.gpu_status()))
    subjects, notes = _worth_measuring(watching)
    return subjects, training, notes


def _worth_measuring(watching: _Watching) -> tuple[list[Subject], list[str]]:
    slowest_first = sorted(watching.loaders.values(), key=lambda kind: kind.waited_s, reverse=True)
    whole = sum(kind.whole_s for kind in slowest_first)
    waited = sum(kind.waited_s for kind in slowest_first)
    subjects: list[Subject] = []
    notes: list[str] = []
    further: list[_Loader] = []
    for kind in slowest_first:
        if len(subjects) >= _MOST_LOADERS or (subjects and kind.waited_s < _WORTH_WAITING * waited):
            further.append(kind)
            continue
        try:
            subject = of_loader(kind.loader, kind.role)
        except NotUsable as problem:
            notes.append(f"{described(kind.loader.dataset)} ({kind.role}) was not measured: {problem}")
            continue
        subject.report.waited_share = kind.waited_s / whole if whole > 0 else None
        subjects.append(subject)
    if further:
        theirs = sum(kind.waited_s for kind in further)
        notes.append(
            f"further loaders ({len(further)}) were not measured: the training waited {theirs:.2f} s for them, of "
            f"{waited:.2f} s in all"
        )
    if not subjects:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise NotUsable(f"the training took no batch from a loader that can be measured{why}")
    return subjects, notes
