"""The JSON document of ``tune``. ``tune --json`` writes the document, and ``tune`` prints its content.

The page docs/json.md describes each field. A new field must have a default, so that existing documents stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import msgspec

from chirp_migrate.stats.ratios import Ratio, paired_ratio


@dataclass(frozen=True)
class CandidateSettings:
    """A combination of loader settings that ``tune`` measures.

    Attributes:
        num_workers: number of worker processes; 0 to load in the main process.
        prefetch_factor: number of batches that each worker process loads ahead; None without worker processes.
        prefetch_threads: number of threads in the main process that load batches ahead; 0 for no threads, and always 0
            with worker processes.
        batch_size: number of samples in a batch; None if a batch sampler decides this number.
    """

    num_workers: int
    prefetch_factor: int | None = None
    prefetch_threads: int = 0
    batch_size: int | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """Return (workers, threads, batches loaded ahead), by which settings are sorted from small to large."""
        return (self.num_workers, self.prefetch_threads, self.num_workers * (self.prefetch_factor or 0))

    @property
    def is_in_main_process(self) -> bool:
        """Return whether the main process loads each batch on request, without worker processes and without threads."""
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
    """The measurements of one combination of loader settings.

    Attributes:
        candidate: the settings that were measured.
        rates: samples per second after the start of the workers, one value for each repetition of the measurement.
        first_batch_s: seconds until the first batch, including the start of the workers, one value for each repetition.
        error: why the settings could not be measured; None if the settings were measured.
    """

    candidate: CandidateSettings
    rates: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    error: str | None = None


def mean_rate(rates: Sequence[float]) -> Ratio:
    """Return the geometric mean of rates, with its 95 % interval.

    For a single rate, both ends of the interval are equal to this rate.

    Raises:
        ValueError: there are no rates, or a rate is not positive.
    """
    if not rates or min(rates) <= 0:
        raise ValueError("a mean rate needs at least one rate, and all rates must be positive")
    if len(rates) == 1:
        return Ratio(rates[0], rates[0], rates[0], 1)
    return paired_ratio([1.0] * len(rates), rates)


def mean_rates(measured: Sequence[CandidateMeasurement]) -> dict[CandidateSettings, Ratio]:
    """Return the mean rate of each configuration. The result omits configurations that could not be measured."""
    return {
        configuration.candidate: mean_rate(configuration.rates) for configuration in measured if configuration.rates
    }


class SettingsOutcome(str, Enum):
    """The result for loader settings: best, tied with the best (at most 5 % slower), below (slower), or failed."""

    BEST = "best"
    TIED = "tied"
    BELOW = "below"
    FAILED = "failed"


class SettingsComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a configuration (combination of loader settings) with the best configuration.

    Attributes:
        configuration: description of the settings, such as ``4 workers, prefetch 2``.
        outcome: whether the configuration is the best, tied with the best, slower, or failed.
        conclusive: whether more measurements are unlikely to change the outcome.
        samples_per_s: mean throughput in samples per second; None if the configuration could not be measured.
        interval: 95 % interval of ``samples_per_s`` as (low, high); None with fewer than two rounds.
        batches_per_s: mean throughput in batches per second; None if a batch sampler decides the batch size.
        ratio_to_best: rate of this configuration / rate of the best configuration; None for the best configuration
            itself, and with fewer than two rounds.
        ratio_to_best_interval: 95 % interval of ``ratio_to_best`` as (low, high); None if ``ratio_to_best`` is None.
    """

    configuration: str
    outcome: SettingsOutcome
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
        setting: name of the setting, such as ``num_workers`` or ``data.num_workers in config.yaml``.
        value: the recommended value, or the recommended change of the setting.
        why: the measured values that are the reason for the recommendation, as text.
        warning: whether the recommendation is a warning. A warning means that some settings failed, or that a measured
            value is outside a limit in docs/tune.md, such as augmentation above 30 % of the loading time.
    """

    setting: str
    value: str
    why: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.setting}: {self.value} ({self.why})"


@dataclass
class LoaderReport:
    """The measurements of settings for one loader, and the recommendations from these measurements.

    Attributes:
        name: class names of the dataset and of the datasets that it wraps, outermost first.
        role: purpose of the loader, ``training`` or ``validation``.
        batch_size: number of samples in a batch; None if a batch sampler decides this number.
        samples: number of samples in the dataset.
        migrated: whether the loader of ``chirpid_patch`` was measured; False for PyTorch's loader.
        now: settings with which the user's own code builds the loader; None if these settings are not known.
        setting: dictionary, argument of the loader → where the user sets this argument, such as ``data.num_workers in
            config.yaml``; empty without a configuration file.
        measured: measurements of all combinations of settings.
        batch_sizes: measurements of the picked settings with the present and with other batch sizes; an empty list if
            the user requested no other batch sizes.
        rounds: number of rounds; each round measures a combination of settings at most once.
        cpu_share: share of the loading time in the main process that is CPU time, 0 to 1. A low value shows that
            loading waits, for example for files. The value is None if loading in the main process was not measured.
        with_s: seconds per batch with augmentation, one value for each measurement; an empty list if augmentation was
            not measured.
        without_s: seconds per batch without augmentation, one value for each measurement; an empty list if augmentation
            was not measured.
        not_augmented: why the augmentation was not measured; None if the augmentation was measured.
        others: share of the CPUs that other processes used during the measurement, 0 to 1, as a median; None if this
            share is not known.
        waited_share: share of the training time, 0 to 1, during which the training waits for this loader; None without
            a training.
        saved: path of the profile in which the picked settings were saved; None if the settings were not saved.
        not_saved: why the picked settings were not saved; None if the settings were saved, or if the user did not
            request a profile.
        picked: the picked settings; None if no settings could be measured.
        conclusive: whether more measurements are unlikely to change the picked settings.
        comparisons: for each element of ``measured``, its comparison with the best settings.
        augmentation_share: share of the loading time that augmentation takes, 0 to 1; None if augmentation was not
            measured.
        recommendations: the recommended changes of settings and code; an empty list without recommendations.
    """

    name: str
    role: str
    batch_size: int | None
    samples: int
    migrated: bool
    now: CandidateSettings | None = None
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
    picked: CandidateSettings | None = None
    conclusive: bool = True
    comparisons: list[SettingsComparison] = field(default_factory=list)
    augmentation_share: float | None = None
    recommendations: list[Recommendation] = field(default_factory=list)


@dataclass
class TrainingRun:
    """The training whose loaders ``tune`` measured.

    Attributes:
        seconds: wall time in which the training functions or the script ran, in seconds.
        gpu_percent: mean utilisation of the GPUs during the training, in percent; None if the utilisation cannot be
            read.
        gpu: description of the GPUs, or "no GPU" with the reason.
    """

    seconds: float
    gpu_percent: float | None
    gpu: str


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The document of ``tune``: all measurements and recommendations.

    Attributes:
        tool: name and version of this program.
        loaders: one report for each measured loader.
        training: the training whose loaders were measured; None if no training ran.
        notes: sentences on loaders and entry points that were not measured.
        machine: processor, CPUs, GPU, system and package versions of the machine that measured.
        described: the same description as one line of text.
    """

    schema: Literal[1] = 1
    tool: str
    loaders: list[LoaderReport]
    training: TrainingRun | None
    notes: list[str]
    machine: dict[str, Any]
    described: str = ""
