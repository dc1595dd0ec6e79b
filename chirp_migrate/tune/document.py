"""The results of ``tune`` as one document: ``--json`` writes it, the terminal shows it.

docs/json.md says what each field is. A field that is added has a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import msgspec

__all__ = [
    "Candidate",
    "Comparison",
    "LoaderReport",
    "Measured",
    "Place",
    "Recommendation",
    "Training",
    "TuneReport",
]


@dataclass(frozen=True)
class Candidate:
    """One way of loading.

    Attributes:
        num_workers: worker processes; 0 loads in the training's own process.
        prefetch_factor: batches that each worker loads ahead; None without workers.
        prefetch_threads: threads that load ahead in the process; 0 with workers.
        batch_size: samples in a batch; None where a batch sampler decides.
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
        """Batches that are loaded at the same time."""
        return max(self.num_workers, self.prefetch_threads, 1)

    @property
    def alone(self) -> bool:
        """Return whether it loads in the process, when a batch is asked for: what everything is compared with."""
        return not (self.num_workers or self.prefetch_threads)

    def __str__(self) -> str:
        if self.num_workers:
            ahead = f", prefetch {self.prefetch_factor}" if self.prefetch_factor is not None else ""
            return f"{self.num_workers} worker{'s' if self.num_workers > 1 else ''}{ahead}"
        if self.prefetch_threads:
            return f"{self.prefetch_threads} prefetch thread{'s' if self.prefetch_threads > 1 else ''}"
        return "in the process"


@dataclass
class Measured:
    """The measurements of one candidate, a value for each of its rounds.

    Attributes:
        candidate: the way of loading.
        rates: samples a second, once running.
        first_batch_s: seconds to the first batch, the start of workers included; no part of the rates.
        batches: batches that were counted, over all rounds.
        error: why it could not be measured; None where it could.
    """

    candidate: Candidate
    rates: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    batches: int = 0
    error: str | None = None


class Place(str, Enum):
    """The place of a configuration: the best, tied with it, below it, or not measured."""

    BEST = "best"
    LEVEL = "level"
    BELOW = "below"
    FAILED = "failed"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration beside the best.

    Attributes:
        configuration: in words.
        place, settled: the outcome, and whether further rounds are unlikely to change it.
        samples_per_s, interval, batches_per_s: its throughput; None where it failed, was not repeated, or a batch
            sampler decides.
        beside_best, beside_best_interval: its rate / the best one's; None for the best, and after a single round.
    """

    configuration: str
    place: Place
    settled: bool
    samples_per_s: float | None = None
    interval: tuple[float, float] | None = None
    batches_per_s: float | None = None
    beside_best: float | None = None
    beside_best_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Recommendation:
    """One thing to do.

    Attributes:
        setting: what to change, such as ``num_workers`` or ``data.num_workers in config.yaml``.
        value: what to set it to, or what to do with it.
        why: the measurement behind it.
        warning: whether something is out of the required range.
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
        batch_size: samples in a batch; None where a batch sampler decides.
        samples: samples in the dataset.
        migrated: whether the loader measured was that of ``chirpid_patch``, else PyTorch's.
        now: how the training loads today; None where that is not known.
        setting: what the user's settings are called, by the argument of the loader: ``num_workers`` may be
            ``data.num_workers in config.yaml``.
        measured: every candidate.
        batch_sizes: what was picked, at other batch sizes.
        rounds: rounds made.
        cpu_share: CPU time / wall time of loading in the process; None where that failed.
        with_s, without_s: seconds a batch with and without augmentation, by round; empty where not measured.
        not_augmented: why they are empty; None where they are not.
        others: share of the CPUs that other processes used meanwhile, the median; None where that is not known.
        waited_share: share of the training's time spent waiting for it; None without a training.
        saved: profile that the pick was kept in; None where it was not.
        not_saved: why not, where it was asked for.
        picked: the configuration that is recommended; None where all failed.
        settled: whether further rounds are unlikely to change it.
        standings: those of ``measured``, in its order.
        augmentation_share: of the time of loading that augmentation takes; None where not measured.
        recommendations: what to change.
    """

    name: str
    role: str
    batch_size: int | None
    samples: int
    migrated: bool
    now: Candidate | None = None
    setting: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    batch_sizes: list[Measured] = field(default_factory=list)
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
    settled: bool = True
    standings: list[Comparison] = field(default_factory=list)
    augmentation_share: float | None = None
    recommendations: list[Recommendation] = field(default_factory=list)


@dataclass
class Training:
    """The training that was watched.

    Attributes:
        seconds: wall time of the training calls.
        gpu_percent: mean utilisation of the GPUs meanwhile; None where there is none to read.
        gpu: the GPUs, or why there is none, in words.
    """

    seconds: float
    gpu_percent: float | None
    gpu: str


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """All raw values, and what is concluded from them; ``described`` says in words what it was measured on."""

    schema: Literal[1] = 1
    tool: str
    loaders: list[LoaderReport]
    training: Training | None
    notes: list[str]
    machine: dict[str, Any]
    described: str = ""
