"""Time whole epochs of all loaders in turns, round after round."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from harness import in_turn
from torch import Tensor

from chirp_migrate.stats.ratios import paired_ratio
from chirp_migrate.training.process.background_load import BackgroundLoadWatch

from .contenders import CONTENDERS, LIMIT, OTHERS, OURS, Running
from .third_party import installed_version
from .workloads import BATCH_SIZE, SHAPE, Data, Workload

NOT_WORSE = 0.97

_TIMED_AT_LEAST_S = 0.1  # epochs are repeated until a measurement takes this long
_MOST_PASSES = 8

Progress = Callable[[str], None]


class WrongWorkError(RuntimeError):
    """A loader lost samples, or changed them in a wrong way."""


@dataclass(frozen=True)
class Values:
    """Statistics of the samples of an epoch, which show whether work was omitted.

    Attributes:
        average: means over all samples of a sample's mean, mean square and share of zeros.
        error: standard errors of these means.
    """

    average: np.ndarray[Any, np.dtype[np.float64]]
    error: np.ndarray[Any, np.dtype[np.float64]]

    def agree(self, other: Values) -> bool:
        """Return whether both can be results of the same random work."""
        allowed = 0.01 + 5 * np.hypot(self.error, other.error)
        return bool((np.abs(self.average - other.average) <= allowed).all())


@dataclass
class Timings:
    """The timings of one loader with one workload.

    Attributes:
        detail: description of the loader's settings.
        unavailable: reason why the loader did not run; None if it ran.
        cold_first_batch_s: seconds from creating the loader to its first batch, with the start of workers.
        passes: number of epochs in a measurement.
        seconds: seconds of an epoch, one value for each round.
        first_batch_s: seconds from the start of an epoch of a warm loader to its first batch, one value for each round.
        waits_s: 0.5 and 0.99 quantiles of the consumer's waits for a batch, over all rounds.
    """

    detail: str = ""
    unavailable: str | None = None
    cold_first_batch_s: float | None = None
    passes: int = 1
    seconds: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Duel:
    """Paired timings of the best other loader and the best loader of this project.

    Attributes:
        other: name of the best other loader.
        ours: name of the best loader of this project.
        other_s: seconds of each epoch with the best other loader.
        ours_s: seconds of each epoch with the best loader of this project.
        ratio: throughput of the loader of this project / throughput of the other loader.
        low, high: the ends of the 95 % interval of the ratio.
    """

    other: str
    ours: str
    other_s: list[float]
    ours_s: list[float]
    ratio: float
    low: float
    high: float

    @property
    def not_worse(self) -> bool:
        """Return whether the upper end of the interval is at least ``NOT_WORSE``."""
        return self.high >= NOT_WORSE


@dataclass(frozen=True)
class FirstBatches:
    """Times to the first batch of new loaders, measured in pairs.

    Attributes:
        plain_s: seconds with the original code without workers.
        ours_s: seconds with the loader of this project.
    """

    plain_s: list[float]
    ours_s: list[float]


@dataclass
class Measured:
    """All measurements of a workload.

    Attributes:
        name: name of the workload.
        title: title of the workload for tables.
        samples: number of samples in an epoch.
        step_s: seconds that the consumer works after each batch.
        contenders: name of a loader → its timings.
        duel: comparison of the best two loaders; None if it was not measured.
        first: times to the first batch; None if they were not measured.
        others_cpu: share of the CPUs that other processes used; None if it is unknown.
    """

    name: str
    title: str
    samples: int
    step_s: float
    contenders: dict[str, Timings] = field(default_factory=dict)
    duel: Duel | None = None
    first: FirstBatches | None = None
    others_cpu: float | None = None


@dataclass(frozen=True)
class _Epoch:
    seconds: float
    waits_s: list[float]


def run_epoch(loader: Any, samples: int, step_s: float = 0.0) -> _Epoch:
    """Time an epoch. Batches are read and then freed.

    Raises:
        WrongWorkError: not every sample came exactly once.
    """
    gc.collect()
    seen: list[Tensor] = []
    waits: list[float] = []
    start = asked = time.perf_counter()
    for batch in loader:
        waits.append(time.perf_counter() - asked)
        batch[0][0, 0, 0, 0].item()
        seen.append(batch[1].clone())
        del batch
        if step_s:
            time.sleep(step_s)
        asked = time.perf_counter()
    seconds = time.perf_counter() - start
    if not torch.equal(torch.cat(seen).sort().values, torch.arange(samples)):
        raise WrongWorkError("an epoch did not hold every sample exactly once")
    return _Epoch(seconds, waits)


def values_of(loader: Any, begun: float) -> tuple[Values, float]:
    """Run an untimed epoch of a new loader; return its values, and the seconds from ``begun`` to its first batch.

    Raises:
        WrongWorkError: the batches are wrong for the workload.
    """
    first, parts = None, []
    for x, _ in loader:
        first = time.perf_counter() - begun if first is None else first
        if x.dtype is not torch.float32 or x.shape[1:] != SHAPE:
            raise WrongWorkError(f"batches are {x.dtype} {tuple(x.shape)}")
        some = x[..., ::3, ::3].double().flatten(1)  # a ninth of the values is enough
        parts.append(torch.stack([some.mean(1), some.square().mean(1), (some == 0).double().mean(1)], 1))
    assert first is not None
    samples = torch.cat(parts)
    error = samples.std(0) / math.sqrt(len(samples))
    return Values(samples.mean(0).numpy(), error.numpy()), first


def measure(workload: Workload, names: Sequence[str], data: Data, rounds: int, progress: Progress) -> Measured:
    """Create all loaders, time them in turns, and then compare the best two in pairs."""
    result = Measured(workload.name, workload.title, data.count(workload), workload.step_s)
    running: dict[str, Running] = {}
    data.prepare(workload)
    # Expensive samples take long, and their times vary little, so a few rounds are enough.
    rounds, pairs = (rounds, 3 * rounds) if workload.decoding is None else (math.ceil(rounds * 0.6), rounds)
    watch = BackgroundLoadWatch()
    with watch.watching():
        try:
            _set_up(workload, names, data, result, running, progress)
            for number in range(rounds):
                for name in in_turn(list(running), number):
                    progress(f"round {number + 1} of {rounds}: {name}")
                    _time_once(result, name, running[name])
            for timings in result.contenders.values():
                if timings.waits_s:
                    timings.waits_s = np.quantile(timings.waits_s, [0.5, 0.99]).tolist()
            result.duel = _duel(result, running, max(3, pairs), progress)
        finally:
            for one in running.values():
                one.close()
        if workload.in_memory and {"original-0", "ours"} <= running.keys():
            progress("first batches")
            result.first = _first_batches(workload, data, 3 * rounds)
    result.others_cpu = watch.share_of_others()
    return result


def _set_up(
    workload: Workload,
    names: Sequence[str],
    data: Data,
    result: Measured,
    running: dict[str, Running],
    progress: Progress,
) -> None:
    """Create each loader, and run an untimed epoch. Record why a loader cannot run."""
    expected: Values | None = None
    for contender in CONTENDERS:
        if contender.name not in names or not contender.suits(workload):
            continue
        progress(f"setting up {contender.name}")
        timings = result.contenders[contender.name] = Timings()
        if contender.needs is not None and installed_version(contender.needs) is None:
            timings.unavailable = f"{contender.needs} is not installed"
            continue
        try:
            make = contender.prepare(workload, data)
            begun = time.perf_counter()
            one = make()
        except ImportError as error:
            if contender.needs is None:
                raise
            timings.unavailable = f"{contender.needs} cannot be imported: {error}"
            continue
        running[contender.name] = one
        if contender.side == LIMIT:
            next(iter(one))
            timings.cold_first_batch_s = time.perf_counter() - begun
        else:
            values, timings.cold_first_batch_s = values_of(one, begun)
            expected = expected or values
            if not values.agree(expected):
                raise WrongWorkError(f"{contender.name} at {workload.name}: {values}, others {expected}")
        timings.detail = getattr(one.loader, "decision", one.detail)
        if workload.in_memory:
            warm = run_epoch(one, result.samples).seconds
            timings.passes = min(_MOST_PASSES, max(1, math.ceil(_TIMED_AT_LEAST_S / warm)))


def _time_once(result: Measured, name: str, one: Running) -> None:
    timings = result.contenders[name]
    epochs = [run_epoch(one, result.samples, result.step_s) for _ in range(timings.passes)]
    timings.seconds.append(sum(epoch.seconds for epoch in epochs) / timings.passes)
    timings.first_batch_s.append(float(np.median([epoch.waits_s[0] for epoch in epochs])))
    timings.waits_s += [wait for epoch in epochs for wait in epoch.waits_s]


def _best(result: Measured, side: str, running: dict[str, Running]) -> str | None:
    sides = {contender.name: contender.side for contender in CONTENDERS}
    names = [name for name in running if sides[name] == side]
    return min(names, key=lambda name: float(np.median(result.contenders[name].seconds)), default=None)


def _duel(result: Measured, running: dict[str, Running], pairs: int, progress: Progress) -> Duel | None:
    other, ours = _best(result, OTHERS, running), _best(result, OURS, running)
    if other is None or ours is None:
        return None
    times: dict[str, list[float]] = {other: [], ours: []}
    for number in range(pairs):
        progress(f"pair {number + 1} of {pairs}: {other}, {ours}")
        for name in (other, ours) if number % 2 else (ours, other):
            passes = result.contenders[name].passes
            epochs = [run_epoch(running[name], result.samples, result.step_s) for _ in range(passes)]
            times[name].append(sum(epoch.seconds for epoch in epochs) / passes)
    ratio = paired_ratio(times[ours], times[other])
    return Duel(other, ours, times[other], times[ours], ratio.value, ratio.low, ratio.high)


def _first_batches(workload: Workload, data: Data, pairs: int) -> FirstBatches:
    by_name = {contender.name: contender for contender in CONTENDERS}
    make = {name: by_name[name].prepare(workload, data) for name in ("original-0", "ours")}
    times: dict[str, list[float]] = {name: [] for name in make}
    for number in range(pairs + 1):
        for name in list(make)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.perf_counter()
            one = make[name]()
            next(iter(one))
            taken = time.perf_counter() - start
            one.close()
            if number:  # the first pair is warm-up
                times[name].append(taken)
    return FirstBatches(times["original-0"], times["ours"])


def rates(result: Measured, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the samples per second, one value for each round."""
    return result.samples / np.asarray(result.contenders[name].seconds)


def relative(result: Measured, name: str, to: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return throughput / throughput of the loader ``to`` for each round; None if one of the two did not run."""
    one, other = result.contenders.get(name), result.contenders.get(to)
    if one is None or other is None or not one.seconds or not other.seconds:
        return None
    return np.divide(other.seconds, one.seconds, dtype=np.float64)


def busy_shares(result: Measured, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of an epoch in which the consumer works, one value for each round."""
    batches = math.ceil(result.samples / BATCH_SIZE)
    return batches * result.step_s / np.asarray(result.contenders[name].seconds)
