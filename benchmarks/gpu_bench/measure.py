"""Timing: turns of whole epochs, every way to load in turn, round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from chirp_migrate.verify.statistics import Ratio, paired_ratio
from chirpid_patch.device.nvml import GpuProbe
from chirpid_patch.device.nvml_sampler import GpuSampler, GpuUsage

_LONGEST_LEAD_S = 1.0  # NVML's longest sampling period
_FEWEST_ROUNDS = 2  # for a ratio with an interval


@dataclass(frozen=True)
class Gpu:
    """The GPU in the later part of a turn; None where NVML does not tell.

    Attributes:
        busy_percent: mean of NVML's utilisation.
        sm_clock_mhz, power_w: means.
        throttled: what lowered the clocks, each with the share of the readings that saw it.
        readings, reading_s: how often it was read, and how long that took in all.
        why: why there is no utilisation, if there is none.
    """

    busy_percent: float | None
    sm_clock_mhz: float | None
    power_w: float | None
    throttled: dict[str, float]
    readings: int
    reading_s: float
    why: str | None

    @classmethod
    def of(cls, usage: GpuUsage, device: torch.device) -> Gpu:
        """What a sampler saw of the GPU that is trained on."""
        read = usage.cost.readings, usage.cost.seconds
        if device.type != "cuda":
            return cls(None, None, None, {}, *read, "the training is on the CPU")
        number = torch.cuda.current_device() if device.index is None else device.index
        if number >= len(usage.gpus):
            return cls(None, None, None, {}, *read, usage.reason or f"NVML shows {len(usage.gpus)} GPUs")
        gpu = usage.gpus[number]  # they come in CUDA's order
        names = ("utilization_percent", "sm_clock_mhz", "power_w")
        busy, clock, power = (gpu.fields[name].mean if name in gpu.fields else None for name in names)
        return cls(busy, clock, power, dict(gpu.throttled), *read, gpu.unreadable.get("utilization_percent"))


@dataclass(frozen=True)
class Turn:
    """Some epochs of training: samples, seconds, and the GPU meanwhile."""

    samples: int
    seconds: float
    gpu: Gpu


@dataclass
class Timings:
    """One way to load, in one cell.

    Attributes:
        detail: what it was set up as, in its own words.
        failed: why it could not run, else None.
        turns: one a round.
    """

    detail: str = ""
    failed: str | None = None
    turns: list[Turn] = field(default_factory=list)

    @property
    def seconds_a_sample(self) -> list[float]:
        """One value a round."""
        return [turn.seconds / turn.samples for turn in self.turns]

    @property
    def rate(self) -> float | None:
        """Samples a second: the median of the rounds."""
        return float(1 / np.median(self.seconds_a_sample)) if self.turns else None

    @property
    def busy_percent(self) -> float | None:
        """GPU utilisation: the mean of the turns that NVML told it of."""
        known = [turn.gpu.busy_percent for turn in self.turns if turn.gpu.busy_percent is not None]
        return float(np.mean(known)) if known else None

    @property
    def throttled(self) -> dict[str, float]:
        """What lowered the clocks, each with the largest share of a turn's readings that saw it."""
        shares: dict[str, float] = {}
        for turn in self.turns:
            for why, share in turn.gpu.throttled.items():
                shares[why] = max(share, shares.get(why, 0.0))
        return shares


def times_faster(slow: Timings, fast: Timings) -> Ratio | None:
    """How many times the samples a second of ``slow`` ``fast`` reaches, from paired turns; None without two pairs."""
    rounds = min(len(slow.turns), len(fast.turns))
    if rounds < 2:
        return None
    return paired_ratio(fast.seconds_a_sample[:rounds], slow.seconds_a_sample[:rounds])


def wait_for(device: torch.device) -> None:
    """Return when the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def turn(epoch: Callable[[], int], seconds: float, device: torch.device, probe: GpuProbe) -> Turn:
    """Whole epochs until so many seconds are over, at least one; ``epoch`` says how many samples it trained on.

    The GPU is read in the second half, or from one second on: NVML's figure is an average over up to the second before.
    """
    samples = 0
    wait_for(device)
    with GpuSampler(0.05, lead_s=min(_LONGEST_LEAD_S, seconds / 2), probe=probe) as sampler:
        begun = time.perf_counter()
        while (taken := time.perf_counter() - begun) < seconds or not samples:
            samples += epoch()
        wait_for(device)
        taken = time.perf_counter() - begun
    return Turn(samples, taken, Gpu.of(sampler.usage(), device))


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: another one begins each, and every other round goes backwards."""
    start = number % len(names) if names else 0
    turned = [*names[start:], *names[:start]]
    return turned[::-1] if number % 2 else turned


@dataclass(frozen=True)
class Span:
    """When something is to end (``time.monotonic``): better by ``until``, and begin nothing after ``hard_end``.

    A turn lasts ``longest_turn_s`` seconds at most, and always an epoch; there are at most ``most_rounds`` of each.
    """

    until: float
    hard_end: float
    longest_turn_s: float
    most_rounds: int

    @property
    def over(self) -> bool:
        """Whether nothing is to be begun any more."""
        return time.monotonic() > self.hard_end

    def turn_s(self, turns: int) -> float:
        """Seconds for each of so many turns from now on."""
        return min(self.longest_turn_s, max(0.0, self.until - time.monotonic()) / max(1, turns))


def take_turns(
    epochs: Mapping[str, Callable[[], int]],
    timings: Mapping[str, Timings],
    rounds: int,
    span: Span,
    device: torch.device,
    probe: GpuProbe,
) -> None:
    """Train by each of ``epochs`` in turn, round after round, and add the turns to its ``timings``.

    No round is begun when the span should be over once there are two, and no turn when it is.
    """
    rounds = min(rounds, span.most_rounds)
    seconds = span.turn_s(rounds * len(epochs))
    for number in range(rounds):
        if number >= _FEWEST_ROUNDS and time.monotonic() > span.until:
            return
        for name in in_turn(list(epochs), number):
            if span.over:
                return
            timings[name].turns.append(turn(epochs[name], seconds, device, probe))
