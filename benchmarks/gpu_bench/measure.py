"""Timing: turns of whole epochs, every way to load in turn, round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from harness import in_turn

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirpid_patch.machine.nvml import GpuProbe, GpuStatus
from chirpid_patch.machine.polling import call_repeatedly

_LONGEST_LEAD_S = 1.0  # NVML's longest sampling period
_READ_EVERY_S = 0.05
_FEWEST_ROUNDS = 2  # for a ratio with an interval


@dataclass(frozen=True)
class Gpu:
    """The GPU in the later part of a turn; None where NVML does not tell.

    Attributes:
        busy_percent: mean of NVML's utilisation.
        readings: how often it was read.
        why: why there is no utilisation, if there is none.
    """

    busy_percent: float | None
    readings: int
    why: str | None

    @classmethod
    def of(cls, statuses: Sequence[GpuStatus], device: torch.device) -> Gpu:
        """What was read of the GPU that is trained on."""
        count = len(statuses)
        if device.type != "cuda":
            return cls(None, count, "the training is on the CPU")
        if not statuses:
            return cls(None, 0, "the turn was too short for a reading")
        number = torch.cuda.current_device() if device.index is None else device.index
        last = statuses[-1]
        if number >= len(last.readings):
            return cls(None, count, last.reason or f"NVML shows {len(last.readings)} GPUs")
        read = [status.readings[number] for status in statuses if number < len(status.readings)]  # in CUDA's order
        known = [one.utilization_percent for one in read if one.utilization_percent is not None]
        if not known:
            return cls(None, count, read[-1].unreadable["utilization_percent"])
        return cls(float(np.mean(known)), count, None)


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
    statuses: list[GpuStatus] = []
    lead_s = min(_LONGEST_LEAD_S, seconds / 2)
    wait_for(device)
    begun = time.perf_counter()

    def read() -> None:
        if time.perf_counter() - begun >= lead_s:
            statuses.append(probe.read())

    with call_repeatedly(read, _READ_EVERY_S, "gpu-bench-reader"):
        while (taken := time.perf_counter() - begun) < seconds or not samples:
            samples += epoch()
        wait_for(device)
        taken = time.perf_counter() - begun
    return Turn(samples, taken, Gpu.of(statuses, device))


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
