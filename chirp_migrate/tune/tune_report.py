"""The results of ``tune`` as one document: ``--json`` writes it, the terminal shows it.

docs/json.md describes each field. A new field gets a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import msgspec

__all__ = [
    "Candidate",
    "CandidateMeasurement",
    "Comparison",
    "LoaderReport",
    "Outcome",
    "Recommendation",
    "Training",
    "TuneReport",
]


@dataclass(frozen=True)
class Candidate:
    """A configuration to measure.

    Attributes:
        num_workers: number of worker processes; 0 loads in the training's own process.
        prefetch_factor: batches that each worker loads ahead; None without workers.
        prefetch_threads: number of prefetching threads in the main process; 0 with workers.
        batch_size: samples in a batch; None if a batch sampler decides.
    """

    num_workers: int
    prefetch_factor: int | None = None
    prefetch_threads: int = 0
    batch_size: int | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the cost of a candidate in processes, then threads, then memory for batches: smaller is better."""
        return (self.num_workers, self.prefetch_threads, self.num_workers * (self.prefetch_factor or 0))

    @property
    def at_once(self) -> int:
        """Return the number of batches that are loaded at the same time."""
        return max(self.num_workers, self.prefetch_threads, 1)

    @property
    def alone(self) -> bool:
        """Return whether batches are loaded in the main process on request: the reference of all comparisons."""
        return not (self.num_workers or self.prefetch_threads)

    def __str__(self) -> str:
        if self.num_workers:
            ahead = f", prefetch {self.prefetch_factor}" if self.prefetch_factor is not None else ""
            return f"{self.num_workers} worker{'s' if self.num_workers > 1 else ''}{ahead}"
        if self.prefetch_threads:
            return f"{self.prefetch_threads} prefetch thread{'s' if self.prefetch_threads > 1 else ''}"
        return "in the main process"


@dataclass
class CandidateMeasurement:
    """The measurements of one candidate, a value for each of its rounds.

    Attributes:
        candidate: the configuration.
        rates: samples per second after the start.
        first_batch_s: seconds to the first batch, including the start of workers; not part of the rates.
        batches: number of counted batches, over all rounds.
        error: why it could not be measured; None if it was measured.
    """

    candidate: Candidate
    rates: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    batches: int = 0
    error: str | None = None


class Outcome(str, Enum):
    """The outcome for a configuration: the best, tied with the best, below the best, or not measured."""

    BEST = "best"
    TIED = "tied"
    BELOW = "below"
    FAILED = "failed"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a configuration with the best one.

    Attributes:
        configuration: its description.
        outcome, conclusive: the outcome, and whether further rounds are unlikely to change it.
        samples_per_s, interval, batches_per_s: its throughput; None if it failed, was not repeated, or a batch sampler
            decides.
        ratio_to_best, ratio_to_best_interval: its rate / the rate of the best; None for the best, and after a single
            round.
    """

    configuration: str
    outcome: Outcome
    conclusive: bool
    samples_per_s: float | None = None
    interval: tuple[float, float] | None = None
    batches_per_s: float | None = None
    ratio_to_best: float | None = None
    ratio_to_best_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Recommendation:
    """A recommended change.

    Attributes:
        setting: the setting, such as ``num_workers`` or ``data.num_workers in config.yaml``.
        value: the recommended value, or what to do with the setting.
        why: the measurement that is the reason.
        warning: whether a measured value is out of the required range.
    """

    setting: str
    value: str
    why: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.setting}: {self.value} ({self.why})"


@dataclass
class LoaderReport:
    """The results for one loader, and the conclusions from them (from ``picked`` on).

    Attributes:
        name: class names of its dataset, outermost first.
        role: ``training`` or ``validation``.
        batch_size: samples in a batch; None if a batch sampler decides.
        samples: samples in the dataset.
        migrated: whether the measured loader was that of ``chirpid_patch``, else PyTorch's.
        now: the current configuration of the training; None if it is not known.
        setting: argument of the loader → name of the user's setting: ``num_workers`` may be ``data.num_workers in
            config.yaml``.
        measured: the measurements of all candidates.
        batch_sizes: the measurements of the pick at other batch sizes.
        rounds: number of rounds.
        cpu_share: CPU time / wall time of loading in the main process; None if that failed.
        with_s, without_s: seconds per batch with and without augmentation, by round; empty if not measured.
        not_augmented: why these are empty; None if they are not.
        others: median share of the CPUs that other processes used meanwhile; None if it is not known.
        waited_share: share of the training's time spent waiting for this loader; None without a training.
        saved: profile in which the pick was saved; None if it was not saved.
        not_saved: why the pick was not saved, if that was requested.
        picked: the recommended configuration; None if all failed.
        conclusive: whether further rounds are unlikely to change the pick.
        comparisons: the comparisons of ``measured``, in the same order.
        augmentation_share: share of the loading time that augmentation takes; None if not measured.
        recommendations: the recommended changes.
    """

    name: str
    role: str
    batch_size: int | None
    samples: int
    migrated: bool
    now: Candidate | None = None
    setting: dict[str, str] = field(default_factory=dict)
    measured: list[CandidateMeasurement] = field(default_factory=list)
    batch_sizes: list[CandidateMeasurement] = field(default_factory=list)
    rounds: int = 0
    cpu_share: float | None = None
    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    not_augmented: str | None = None
    others: float | None = None
    waited_share: float | None = None
    saved: str | None = None
    not_saved: str | None = None
    picked: Candidate | None = None
    conclusive: bool = True
    comparisons: list[Comparison] = field(default_factory=list)
    augmentation_share: float | None = None
    recommendations: list[Recommendation] = field(default_factory=list)


@dataclass
class Training:
    """The training that was watched.

    Attributes:
        seconds: wall time of the training calls in seconds.
        gpu_percent: mean utilisation of the GPUs meanwhile; None if none can be read.
        gpu: description of the GPUs, or why there is none.
    """

    seconds: float
    gpu_percent: float | None
    gpu: str


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """All raw values and the conclusions; ``described`` describes the machine of the measurement."""

    schema: Literal[1] = 1
    tool: str
    loaders: list[LoaderReport]
    training: Training | None
    notes: list[str]
    machine: dict[str, Any]
    described: str = ""
