"""The child process: ``python -m chirp_migrate.verify.runner SPEC.json``, one for each side and round.

It trains the backend's own entry points on synthetic spectrograms, in a fresh interpreter whose working directory
and first import path are the backend's root. Every entry point is first run once on a few samples, so that
imports, compilers and allocators have done their one-time work before anything is timed.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from chirp_migrate.verify.api import describe_api
from chirp_migrate.verify.cached import CachedLoading
from chirp_migrate.verify.calls import load_model, prepare_call
from chirp_migrate.verify.data import TrainingData, make_training_data
from chirp_migrate.verify.fingerprint import fingerprint
from chirp_migrate.verify.observe import LoaderWatch
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, RunSpec
from chirp_migrate.verify.workload import EntryPoint

__all__ = ["EntryPointRaised", "main", "run"]

_WORKERS_END_WITHIN_S = 10.0


class EntryPointRaised(Exception):
    """An entry point of the backend raised; ``__cause__`` is what it raised."""

    def __init__(self, entry: EntryPoint, stage: str, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}".strip()
        super().__init__(f"{entry.label} raised {text} ({stage})")


def main(arguments: list[str]) -> int:
    """Run the specification in the file named by the only argument; 0, or 1 when an entry point raised."""
    spec = RunSpec.read(Path(arguments[0]))
    _enter_tree(Path(spec.tree))
    torch.set_num_threads(spec.threads)
    result = RunResult()
    try:
        run(spec, result)
    except EntryPointRaised as raised:
        traceback.print_exception(raised.__cause__)
        result.failure = str(raised)
    result.write(Path(spec.output))
    return 0 if result.failure is None else 1


def run(spec: RunSpec, result: RunResult) -> None:
    """Warm up, then make the passes of ``spec`` and put what they show into ``result``.

    Raises:
        EntryPointRaised: the backend's code raised; ``result`` holds what was found before.
    """
    _warm_up(spec)
    gc.freeze()  # what the imports made is not looked through again in every collection
    data = make_training_data(spec.sizes)
    for mode in spec.modes:
        result.modes[mode] = _make_pass(spec, data, mode)
    if spec.api_names:
        result.api = describe_api(spec.api_names)


def _warm_up(spec: RunSpec) -> None:
    """Go once through everything that has a first time: imports, compilers, allocators, worker processes.

    The machinery of worker processes is met once here, on both sides; in the entry points themselves loaders
    with workers are replaced, because starting all of them twice would double the time of a verification.
    """
    small = make_training_data(spec.sizes.warm_up())
    for _ in DataLoader(small.dataset(), batch_size=8, num_workers=1):
        pass
    with CachedLoading(only_workers=True) as without_workers:
        for entry in spec.entry_points:
            call = _prepared(spec, entry, small, warm_up=True)
            without_workers.interception.cover_new_classes()
            _call(call, entry, "warm-up", spec.sizes.seed)


def _make_pass(spec: RunSpec, data: TrainingData, mode: Mode) -> dict[str, EntryResult]:
    results: dict[str, EntryResult] = {}
    with ExitStack() as stack:
        watch = stack.enter_context(LoaderWatch()) if mode is Mode.PROBE else None
        cached = stack.enter_context(CachedLoading()) if mode is Mode.CACHED else None
        for entry in spec.entry_points:
            call = _prepared(spec, entry, data)
            if watch is not None:
                watch.interception.cover_new_classes()
            if cached is not None:
                cached.interception.cover_new_classes()
                cached.reset()
            seconds, value = _call(call, entry, mode.value, spec.sizes.seed)
            results[entry.label] = EntryResult(
                seconds=seconds - (cached.making_s if cached is not None else 0.0),
                fingerprint=fingerprint(value),
                passes=watch.take() if watch is not None else [],
            )
            del value, call
    return results


def _prepared(spec: RunSpec, entry: EntryPoint, data: TrainingData, warm_up: bool = False) -> Callable[[], Any]:
    try:
        model = load_model(spec.model)
        return prepare_call(entry, model, data, spec.sizes.warm_up() if warm_up else spec.sizes)
    except Exception as error:
        raise EntryPointRaised(entry, "import", error) from error


def _call(call: Callable[[], Any], entry: EntryPoint, stage: str, seed: int) -> tuple[float, Any]:
    """Seed everything, call, and take the time; worker processes left by the call before are gone first."""
    _let_workers_end()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    began = time.perf_counter()
    try:
        value = call()
    except (Exception, SystemExit) as error:
        raise EntryPointRaised(entry, stage, error) from error
    return time.perf_counter() - began, value


def _let_workers_end() -> None:
    gc.collect()
    deadline = time.monotonic() + _WORKERS_END_WITHIN_S
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.005)


def _enter_tree(tree: Path) -> None:
    """Make the tree the working directory and first import path, with this package still importable, as last."""
    package_root = sys.path[0]
    os.chdir(tree)
    sys.path[0] = str(tree)
    if package_root not in sys.path:
        sys.path.append(package_root)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
