"""The child processes of a verification: started, given turns, and timed.

A round is a pair of fresh processes, one a side. Where both can be there at once they train in turns, entry point by
entry point; else one follows the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from msgspec import structs

from chirp_migrate.console.progress import Progress, Step, untold
from chirp_migrate.stats.sequential_looks import MIN_ROUNDS
from chirp_migrate.training.process.background_load import Watch, own_s
from chirp_migrate.training.process.run_child import Child, Role
from chirp_migrate.training.process.snapshot import freshen
from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint, Source
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, RunSpec
from chirp_migrate.verify.timing.rounds import SIDES, TimedRound, order

__all__ = ["Children", "child_of", "run_child"]

_TRIAL_SHARE = 1 / 6
"""Of the budget, for the trial of one side."""

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_T = TypeVar("_T")


def child_of(spec: RunSpec, side: str, progress: Progress = untold) -> Child[RunResult]:
    """A process that is about to be started; ``side`` is ``before`` or ``after``, for messages."""
    freshen(Path(spec.tree))
    role = Role(f"The {side} side", f"The {side} side failed: ", "--samples and --epochs", side)
    environment = dict.fromkeys(_THREAD_SETTINGS, str(spec.threads))
    environment["PYTHONHASHSEED"] = str(spec.hash_seed)
    return Child("chirp_migrate.verify.runner", spec, RunResult, role, spec.options.timeout_s, environment, progress)


def run_child(spec: RunSpec, side: str) -> RunResult:
    """Run one child from its start to its end; see :func:`child_of`.

    Raises:
        WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
    """
    with child_of(spec, side) as child:
        return child.result()


class Children:
    """Starts child processes, numbered, with the same workload for both sides.

    Attributes:
        first_timed: side → entry point → result in the first timed process; ``cached`` is a side, too.
        has_loaders: whether the training takes batches from loaders that are seen, so that they can be cached.
    """

    def __init__(
        self, trees: dict[str, Path], discovery: Discovery, settings: VerifyOptions, progress: Progress = untold
    ) -> None:
        self._progress = progress
        self._trees = trees
        self._discovery = discovery
        self._settings = settings
        synthetic = discovery.source is Source.FOUND and settings.sizes.data is None
        self._beside_each_other = synthetic and not torch.cuda.is_available()
        self.first_timed: dict[str, dict[str, EntryResult]] = {}
        self.has_loaders = True

    def trial(self) -> tuple[dict[str, RunResult], float]:
        """Both sides train the entry points briefly, as many as a share of the budget allows, from the first one on.

        See :class:`chirp_migrate.verify.spec.Tried`.

        Returns:
            What each side showed, and the seconds until the first was ready to train.

        Raises:
            WorkloadFailed: the backend's code crashed or hung.
        """
        began, ready_s, results = time.monotonic(), 0.0, {}
        seconds = _TRIAL_SHARE * self._settings.budget_s
        with ExitStack() as stack:
            for side, child in self.in_turn(stack, Step("trying"), {"before": (), "after": ()}, trial_s=seconds):
                ready_s = ready_s or time.monotonic() - began
                results[side] = child.result()
        return results, ready_s

    def time_round(self, number: int, labels: frozenset[str] | None = None, cached: bool = True) -> TimedRound:
        """Time one process of each side, which do the same things in the same order.

        Args:
            number: of the round, from 0.
            labels: the entry points that run; all by default.
            cached: whether the side after, once all is timed, also trains from cached batches.

        Raises:
            WorkloadFailed: the backend's code crashed or hung.
        """
        began = time.monotonic()
        sides = order(self._settings.sizes.seed, number)
        modes: dict[str, tuple[Mode, ...]] = dict.fromkeys(sides, (Mode.TIMED,))
        if cached and self.has_loaders:
            modes["after"] = (Mode.TIMED, Mode.CACHED)
        discovery = replace(self._discovery, entry_points=self._drawn(number, labels))
        watches = {side: Watch() for side in sides}
        results: dict[str, RunResult] = {}

        def watched(side: str, child: Child[RunResult], act: Callable[[], _T]) -> _T:
            with watches[side].watching(lambda: own_s() + child.cpu_s):
                return act()

        with ExitStack() as stack:
            # Each pair of rounds has its own order in sets of strings.
            more = {"discovery": discovery, "by_entry": True, "hash_seed": number // 2}
            # How many rounds there will be is known of the fewest alone.
            doing = Step(f"round {number + 1}", number, MIN_ROUNDS if number < MIN_ROUNDS else 0)
            ready = self.in_turn(stack, doing, modes, **more)
            if self._beside_each_other:
                # A machine's speed drifts within seconds, so what is compared is timed right after each other.
                children = dict(ready)
                while len(results) < len(children):
                    for side, child in children.items():
                        if child.waits:
                            watched(side, child, child.take_turn)
                        elif side not in results:
                            results[side] = child.result()
            else:
                for side, child in ready:
                    results[side] = watched(side, child, child.result)
        seconds: dict[str, dict[str, float]] = {side: {} for side in SIDES}
        for side, result in results.items():
            for mode, entries in result.modes.items():
                name = "cached" if mode is Mode.CACHED else side
                self.first_timed.setdefault(name, entries)
                labels_in_order = [entry.label for entry in self._discovery.entry_points if entry.label in entries]
                seconds[name] = {label: entries[label].seconds for label in labels_in_order}
        known = [share for watch in watches.values() if (share := watch.others()) is not None]
        return TimedRound(sides, seconds, max(known, default=None), time.monotonic() - began)

    def _drawn(self, number: int, labels: frozenset[str] | None) -> tuple[EntryPoint, ...]:
        """The entry points of a round, in an order by lot.

        What ran before leaves its traces in a process, in its allocator above all; none should always follow the same.
        """
        entries = [each for each in self._discovery.entry_points if labels is None or each.label in labels]
        random.Random(f"{self._settings.sizes.seed}-{number}").shuffle(entries)
        return tuple(entries)

    def in_turn(
        self, stack: ExitStack, doing: Step, modes: Mapping[str, tuple[Mode, ...]], **more: Any
    ) -> Iterator[tuple[str, Child[RunResult]]]:
        """One process of each side, ready for its first turn; with :meth:`Child.result` it takes all of them.

        They start and import beside each other where that takes nothing away from anybody: on the small synthetic
        data of found entry points, without a GPU. Else the next one starts when it is asked for, and should not be
        before the last has ended.

        Args:
            stack: ends them.
            doing: what for, in a word, and how much of it is done, unless only the child knows.
            modes: passes of each side, the first side first.
            more: further fields of both, see :class:`RunSpec`.
        """

        def started(side: str) -> Child[RunResult]:
            # The side before has no need of its datasets in workers.
            options = self._settings if side == "after" else replace(self._settings, worker_counts=())
            given: dict[str, Any] = {"discovery": self._discovery, "options": options, "modes": modes[side], **more}
            spec = RunSpec(str(self._trees[side]), **given)
            self._progress(structs.replace(doing, text=f"{doing.text}: starting"))
            return stack.enter_context(child_of(spec, side, partial(told, side)))

        def told(side: str, what: str | Step) -> None:
            if isinstance(what, Step):
                text = f"{doing.text}, {side}: {what.text}"
                what = structs.replace(doing if doing.total else what, text=text)
            self._progress(what)

        together = {side: started(side) for side in modes} if self._beside_each_other else {}
        for child in together.values():
            child.wait_until_ready()
        for side in modes:
            child = together.get(side) or started(side)
            child.wait_until_ready()
            yield side, child
