"""Timing: whole epochs of every contender in turn, round after round."""

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
from chirp_migrate.training.process.background_load import Watch

from .contenders import CONTENDERS, LIMIT, OTHERS, OURS, Running
from .third_party import installed_version
from .workloads import BATCH_SIZE, SHAPE, Data, Workload

NOT_WORSE = 0.97

_TIMED_AT_LEAST_S = 0.1  # epochs are repeated until a measurement takes so long, within limits
_MOST_PASSES = 8

Progress = Callable[[str], None]


class WrongWorkError(RuntimeError):
    """A contender lost samples, or did something else to them."""


@dataclass(frozen=True)
class Values:
    """What the samples of an epoch look like: enough to notice work that was left out.

    Attributes:
        average: over the samples, of a sample's mean, mean square and share of zeros.
        error: the standard errors of these.
    """

    average: np.ndarray[Any, np.dtype[np.float64]]
    error: np.ndarray[Any, np.dtype[np.float64]]

    def agree(self, other: Values) -> bool:
        """Whether both can be outcomes of the same random work."""
        allowed = 0.01 + 5 * np.hypot(self.error, other.error)
        return bool((np.abs(self.average - other.average) <= allowed).all())


@dataclass
class Timings:
    """One contender at one workload.

    Attributes:
        detail: what it was set up as, in its own words.
        unavailable: why it did not run, else None.
        cold_first_batch_s: from making the loader to its first batch, worker start included.
        passes: epochs in a measurement.
        seconds: an epoch, one value a round.
        first_batch_s: from beginning an epoch of a warm loader to its first batch, one value a round.
        waits_s: quantiles 0.5 and 0.99 of what the consumer waited for a batch, over all rounds.
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
    """The best of the others against the best of ours, in pairs; ``ratio`` above 1 means that ours is faster."""

    other: str
    ours: str
    other_s: list[float]
    ours_s: list[float]
    ratio: float
    low: float
    high: float

    @property
    def not_worse(self) -> bool:
        """False only where the whole interval is below the bound."""
        return self.high >= NOT_WORSE


@dataclass(frozen=True)
class FirstBatches:
    """Seconds to the first batch of a new loader, in pairs: the original without workers, and ours."""

    plain_s: list[float]
    ours_s: list[float]


@dataclass
class Measured:
    """All that was measured of a workload; ``others_cpu`` is the share of the CPUs that other processes used."""

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
    """Time an epoch; batches are touched and let go at once.

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
    """An untimed epoch of a new loader: its values, and the seconds from ``begun`` to its first batch.

    Raises:
        WrongWorkError: the batches are not what the workload asks for.
    """
    first, parts = None, []
    for x, _ in loader:
        first = time.perf_counter() - begun if first is None else first
        if x.dtype is not torch.float32 or x.shape[1:] != SHAPE:
            raise WrongWorkError(f"batches are {x.dtype} {tuple(x.shape)}")
        some = x[..., ::3, ::3].double().flatten(1)  # a ninth will do
        parts.append(torch.stack([some.mean(1), some.square().mean(1), (some == 0).double().mean(1)], 1))
    assert first is not None
    samples = torch.cat(parts)
    error = samples.std(0) / math.sqrt(len(samples))
    return Values(samples.mean(0).numpy(), error.numpy()), first


def measure(workload: Workload, names: Sequence[str], data: Data, rounds: int, progress: Progress) -> Measured:
    """Set all contenders up, time them in turn, then let the best two fight it out."""
    result = Measured(workload.name, workload.title, data.count(workload), workload.step_s)
    running: dict[str, Running] = {}
    data.prepare(workload)
    # Expensive samples take long and vary little.
    rounds, pairs = (rounds, 3 * rounds) if workload.decoding is None else (math.ceil(rounds * 0.6), rounds)
    watch = Watch()
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
    result.others_cpu = watch.others()
    return result


def _set_up(
    workload: Workload,
    names: Sequence[str],
    data: Data,
    result: Measured,
    running: dict[str, Running],
    progress: Progress,
) -> None:
    """Make each contender's loader and run an untimed epoch; note those that cannot run."""
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
            if number:  # the first pair warms up
                times[name].append(taken)
    return FirstBatches(times["original-0"], times["ours"])


def rates(result: Measured, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Samples per second, one value a round."""
    return result.samples / np.asarray(result.contenders[name].seconds)


def relative(result: Measured, name: str, to: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Throughput as a multiple of another contender's, round by round; None where one of them did not run."""
    one, other = result.contenders.get(name), result.contenders.get(to)
    if one is None or other is None or not one.seconds or not other.seconds:
        return None
    return np.divide(other.seconds, one.seconds, dtype=np.float64)


def busy_shares(result: Measured, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Share of an epoch in which the consumer was away working, one value a round."""
    batches = math.ceil(result.samples / BATCH_SIZE)
    return batches * result.step_s / np.asarray(result.contenders[name].seconds)
