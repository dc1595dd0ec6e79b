"""Time whole epochs of all loaders in turns, round after round."""

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
_FEWEST_ROUNDS = 2  # a ratio with an interval needs two rounds


@dataclass(frozen=True)
class Gpu:
    """The use of the GPU in the later part of a turn, which is one or more epochs with a loader.

    Attributes:
        busy_percent: mean utilisation that NVML reports, in percent; None if it is not known (see ``why``).
        readings: number of readings.
        why: reason why ``busy_percent`` is None; None if the value is known.
    """

    busy_percent: float | None
    readings: int
    why: str | None

    @classmethod
    def of(cls, statuses: Sequence[GpuStatus], device: torch.device) -> Gpu:
        """Return the readings of the GPU that the training uses."""
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
    """One or more whole epochs of training with a loader: number of samples, seconds, and use of the GPU."""

    samples: int
    seconds: float
    gpu: Gpu


@dataclass
class Timings:
    """The timings of one loader in one cell.

    Attributes:
        detail: description of the loader's settings.
        failed: reason why the loader could not run; None if it ran.
        turns: one turn for each round.
    """

    detail: str = ""
    failed: str | None = None
    turns: list[Turn] = field(default_factory=list)

    @property
    def seconds_a_sample(self) -> list[float]:
        """Return the seconds per sample, one value for each round."""
        return [turn.seconds / turn.samples for turn in self.turns]

    @property
    def rate(self) -> float | None:
        """Return the median samples per second over all rounds."""
        return float(1 / np.median(self.seconds_a_sample)) if self.turns else None

    @property
    def busy_percent(self) -> float | None:
        """Return the mean GPU utilisation of the turns for which NVML reports it."""
        known = [turn.gpu.busy_percent for turn in self.turns if turn.gpu.busy_percent is not None]
        return float(np.mean(known)) if known else None


def times_faster(slow: Timings, fast: Timings) -> Ratio | None:
    """Return rate of ``fast`` / rate of ``slow``, from paired turns; None with fewer than two pairs."""
    rounds = min(len(slow.turns), len(fast.turns))
    if rounds < 2:
        return None
    return paired_ratio(fast.seconds_a_sample[:rounds], slow.seconds_a_sample[:rounds])


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def turn(epoch: Callable[[], int], seconds: float, device: torch.device, probe: GpuProbe) -> Turn:
    """Train at least one whole epoch, and further epochs until ``seconds`` are over.

    ``epoch`` trains one epoch, and returns its number of samples. The use of the GPU is read in the second half of the
    turn, or after one second, because NVML reports a mean over up to the last second.
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
    """The time limits of a measurement.

    Attributes:
        until: value of ``time.monotonic`` at which the measurement should end. Two rounds may exceed this time.
        hard_end: value of ``time.monotonic`` after which no turn begins.
        longest_turn_s: largest number of seconds of a turn; a turn has at least one epoch.
        most_rounds: largest number of rounds.
    """

    until: float
    hard_end: float
    longest_turn_s: float
    most_rounds: int

    @property
    def over(self) -> bool:
        """Return whether no further turn may begin."""
        return time.monotonic() > self.hard_end

    def turn_s(self, turns: int) -> float:
        """Return the seconds for each of the next ``turns`` turns."""
        return min(self.longest_turn_s, max(0.0, self.until - time.monotonic()) / max(1, turns))


def take_turns(
    epochs: Mapping[str, Callable[[], int]],
    timings: Mapping[str, Timings],
    rounds: int,
    span: Span,
    device: torch.device,
    probe: GpuProbe,
) -> None:
    """Train with each of ``epochs`` in turns, round after round, and add the turns to ``timings``.

    After two rounds, no round begins after the end of the span.
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
