"""The child process of a verification, one for each side and round.

It trains the backend's own entry points on synthetic spectrograms, in a fresh interpreter whose working directory
and first import path are the backend's root. Every entry point is first run once on a few samples, so that
imports, compilers and allocators have done their one-time work before anything is timed.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from chirp_migrate.console.progress import Step
from chirp_migrate.training.errors import NotFound, NotUsable, Raised
from chirp_migrate.training.process.imports import check_imports
from chirp_migrate.training.process.inside_child import Parent, serve
from chirp_migrate.training.watch.interception import FewerWorkers, Interception
from chirp_migrate.training.workload.calls import data_for, load_model, prepare_call, seed_everything
from chirp_migrate.training.workload.data import TrainingData
from chirp_migrate.training.workload.entry_points import EntryPoint, Sizes, Source
from chirp_migrate.training.workload.hook import call_names
from chirp_migrate.verify.equivalence.api import describe_api
from chirp_migrate.verify.equivalence.fingerprint import fingerprint
from chirp_migrate.verify.equivalence.first_difference import OTHER_SEEDS, aspects
from chirp_migrate.verify.equivalence.loader_recorder import LoaderWatch
from chirp_migrate.verify.measures.measuring import Measuring
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, RunSpec, Tried
from chirp_migrate.verify.timing.constant_batch import CachedLoading
from chirp_migrate.verify.timing.simulate import SimulatedSteps, StandInModel

__all__ = ["run"]

_WORKERS_END_WITHIN_S = 10.0
_WORKERS_TRIED = 4
_TAIL_LINES = 15
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


@contextmanager
def _code_of(entry: EntryPoint, stage: str) -> Iterator[None]:
    """While code of the backend runs for an entry point: what it raises becomes :class:`Raised`, which names it."""
    try:
        yield
    except NotFound:
        raise
    except NotUsable as error:
        raise Raised(str(error)) from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".strip()
        frames = error.__traceback__ and error.__traceback__.tb_next  # this function's is none of the user's concern
        raise Raised(f"{entry.label or entry.hook} raised {text} ({stage})") from error.with_traceback(frames)


def run(spec: RunSpec, parent: Parent) -> RunResult:
    """Warm up, then make the passes of ``spec``; without passes, try every entry point, or name the calls of a hook.

    Raises:
        Raised: the backend's code raised.
        NotFound: what the user named is not there.
    """
    torch.set_num_threads(spec.threads)
    result = RunResult()
    if spec.trial_s is not None:
        _try(spec, spec.trial_s, parent, result)
        return result
    if not spec.modes:
        (entry,) = spec.entry_points
        with _code_of(entry, "import"):
            result.names = call_names(entry.hook, spec.sizes.warm_up())
        return result
    small = data_for(spec.entry_points, spec.sizes.warm_up())
    data = data_for(spec.entry_points, spec.sizes)
    for entry in spec.entry_points:
        if entry.source is Source.FOUND:
            _prepared(spec, entry, small, spec.sizes.warm_up())  # imports the training code
    parent.wait_for_turn()
    _warm_up(spec, small)
    gc.freeze()
    for mode in spec.modes:
        for entries in [(one,) for one in spec.entry_points] if spec.by_entry else [spec.entry_points]:
            if spec.by_entry:
                _let_workers_end()
                parent.wait_for_turn()
            _make_pass(spec, parent, entries, data, mode, result)
    if spec.api_names:
        result.api = describe_api(spec.api_names)
    return result


def _try(spec: RunSpec, trial_s: float, parent: Parent, result: RunResult) -> None:
    """Train every entry point on a few samples: does it fail, and how long does it take?

    The first training has a worker for every loader that has any, which is enough to fail with one. For the times
    there are none: starting a dozen takes longer than reading the samples, and always as long.
    """
    few = replace(spec.sizes.warm_up(), batch_size=spec.sizes.batch_size)
    brief = (few, replace(few, epochs=2), replace(few, samples=2 * few.samples))
    data = {sizes.samples: data_for(spec.entry_points, sizes) for sizes in brief}
    for entry in spec.entry_points:
        with suppress(Raised):
            _prepared(spec, entry, data[few.samples], spec.sizes.warm_up())  # imports its code; or fails below
    gc.freeze()  # what the imports made is not looked through before every training
    parent.wait_for_turn()
    until = time.monotonic() + trial_s
    worker_s = _worker_s(data[few.samples])
    for number, entry in enumerate(spec.entry_points):
        parent.show(Step(entry.label, number, len(spec.entry_points)))
        if time.monotonic() > until and not all(one.error for one in result.tried.values()):
            break
        try:
            with FewerWorkers(1) as one_worker:
                first_s, _ = _train(spec, entry, data[few.samples], spec.sizes.warm_up(), "trial", one_worker)
            seconds, workers = [], []
            with FewerWorkers(0) as no_workers:
                for sizes in brief:
                    seconds.append(_train(spec, entry, data[sizes.samples], sizes, "trial", no_workers)[0])
                    workers.append(no_workers.take())
        except Raised as raised:
            result.tried[entry.label] = _failed(spec, raised)
        else:
            starting_s = tuple(worker_s * each for each in workers)
            result.tried[entry.label] = Tried("", few.samples, first_s, tuple(seconds), starting_s)
        gc.freeze()
    _let_workers_end()


def _worker_s(small: TrainingData) -> float:
    """Seconds that a worker takes to start and to end, where several do."""
    for _ in DataLoader(small.dataset(), num_workers=1):  # has its first time
        pass
    began = time.perf_counter()
    for _ in DataLoader(small.dataset(), num_workers=_WORKERS_TRIED):
        pass
    return (time.perf_counter() - began) / _WORKERS_TRIED


def _failed(spec: RunSpec, raised: Raised) -> Tried:
    """What the backend's code raised; raises it again where it is not that code that is wrong."""
    error = raised.__cause__
    if error is None or isinstance(error, NotUsable):
        raise raised from error
    printed = "".join(traceback.format_exception(error)).replace(f"{spec.tree}{os.sep}", "")
    said = f"{type(error).__name__}: {error}".replace(f"{spec.tree}{os.sep}", "").strip().splitlines()
    text = " … ".join(dict.fromkeys([said[0], said[-1].strip()]))  # what a worker raised stands in the last line
    tail = "\n".join(printed.splitlines()[-_TAIL_LINES:])
    return Tried(_ADDRESS.sub("0x…", text).rstrip(": "), printed=tail)


def _warm_up(spec: RunSpec, small: TrainingData) -> None:
    """Go once through everything that has a first time: imports, compilers, allocators, worker processes.

    The machinery of worker processes is met once here, on both sides; in the entry points themselves this
    process reads, because starting all workers twice would double the time of a verification.
    """
    if all(entry.source is Source.COMMAND for entry in spec.entry_points):
        return  # a command starts a program of its own, whose first times nothing here could take away
    for _ in DataLoader(small.dataset(), batch_size=8, num_workers=1):
        pass
    with FewerWorkers(0) as without_workers:
        for entry in spec.entry_points:
            _train(spec, entry, small, spec.sizes.warm_up(), "warm-up", without_workers)
            _let_workers_end()
            gc.freeze()  # what the imports made is not looked through again in every collection
    with _code_of(spec.entry_points[0], "import"):
        check_imports(Path(spec.tree), spec.discovery.origin)


def _make_pass(
    spec: RunSpec, parent: Parent, entries: Sequence[EntryPoint], data: TrainingData, mode: Mode, result: RunResult
) -> None:
    results, options = result.modes.setdefault(mode, {}), spec.options
    watch = LoaderWatch() if mode is Mode.PROBE else None
    cached = CachedLoading() if mode is Mode.CACHED else None
    measuring = Measuring(options.worker_counts, options.extra_s) if mode is Mode.MEASURED else None
    simulate = options.simulates and mode is not Mode.PROBE
    # The last to be entered, so that no other sees the sleep.
    steps = SimulatedSteps(options.simulate_step_ms / 1e3) if simulate else None
    interceptions = [each for each in (watch, cached, measuring, steps) if each is not None]
    with ExitStack() as stack:
        for interception in interceptions:
            stack.enter_context(interception)
        for number, entry in enumerate(entries, start=spec.modes.index(mode) * len(entries)):
            parent.show(Step(entry.label, number, 0 if spec.by_entry else len(spec.modes) * len(entries)))
            call = _prepared(spec, entry, data, spec.sizes)
            for interception in interceptions:
                interception.cover_new_classes()
            if measuring is not None:
                train = partial(_call, call, entry, mode.value, spec.sizes.seed)
                results[entry.label] = EntryResult(measuring.train(entry.label, train), {}, [])
                with steps.paused() if steps is not None else nullcontext():
                    measuring.ask(entry.label)
            else:
                if cached is not None:
                    cached.making_s = 0.0
                seconds, value = _call(call, entry, mode.value, spec.sizes.seed)
                seconds -= cached.making_s if cached is not None else 0.0
                one = results[entry.label] = EntryResult(seconds, fingerprint(value), [])
                if watch is not None:
                    watch.draw_on()
                    one.traces = watch.take()
                    if entry.source is not Source.COMMAND:
                        one.seeds = _with_other_seeds(spec, entry, watch)
                del value
            del call
            if steps is not None:
                results[entry.label].steps = steps.take()
    if measuring is not None:
        result.measured = measuring.finish()


def _with_other_seeds(spec: RunSpec, entry: EntryPoint, watch: LoaderWatch) -> list[dict[str, str]]:
    """What short runs with other seeds show, on the same few samples."""
    few = spec.sizes.warm_up()
    small = data_for(spec.entry_points, few)
    shown = []
    watch.few_workers = True
    for offset in OTHER_SEEDS:
        other = replace(few, seed=few.seed + offset)
        _, value = _train(spec, entry, small, other, "other seed", watch)
        shown.append(aspects(watch.take(), fingerprint(value)))
        del value
    watch.few_workers = False
    return shown


def _prepared(spec: RunSpec, entry: EntryPoint, data: TrainingData, sizes: Sizes) -> Callable[[], Any]:
    seed_everything(sizes.seed)  # a hook may make its model here
    with _code_of(entry, "import"):
        model = StandInModel if spec.options.simulates else load_model(spec.discovery.model)
        return prepare_call(entry, model, data, sizes)


def _train(
    spec: RunSpec, entry: EntryPoint, data: TrainingData, sizes: Sizes, stage: str, around: Interception
) -> tuple[float, Any]:
    """Prepare a training call, and make it while its loaders are intercepted; gives its seconds and result."""
    call = _prepared(spec, entry, data, sizes)
    around.cover_new_classes()
    return _call(call, entry, stage, sizes.seed)


def _call(call: Callable[[], Any], entry: EntryPoint, stage: str, seed: int) -> tuple[float, Any]:
    """Seed everything, call, and take the time; worker processes left by the call before are gone first."""
    _let_workers_end()
    seed_everything(seed)
    with _code_of(entry, stage):
        began = time.perf_counter()
        value = call()
        return time.perf_counter() - began, value


def _let_workers_end() -> None:
    gc.collect()
    deadline = time.monotonic() + _WORKERS_END_WITHIN_S
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(serve(RunSpec, run))
