"""Measure combinations of loader settings (candidates) in rounds.

A measured rate does not include the start of workers, because the clock starts when the first batch of every worker has
arrived. The measurement then takes equally many further batches from every worker, and stops the clock when the last of
these batches has arrived.

Each of the first three rounds measures every candidate once, unless a time limit ends the round. Later rounds omit
candidates whose 95 % interval shows that they are more than 5 % slower than the best candidate. A candidate that fails
is not measured again. Every second round uses the reverse order, so that all candidates suffer equally if the machine
becomes slower.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.training.errors import first_message_line
from chirp_migrate.training.process.background_load import BackgroundLoadWatch
from chirp_migrate.tune.measured_dataset import MeasuredDataset
from chirp_migrate.tune.plateau import compare_with_best, is_pick_conclusive, pick_smallest_best
from chirp_migrate.tune.tune_report import CandidateMeasurement, CandidateSettings, SettingsOutcome, mean_rate
from chirpid_patch.loader_speed.measure import EndlessSampler, LoadingRate, measure_loading_rate
from chirpid_patch.loading.worker_start import start_method, worker_start_seconds
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.speed_comparison import order_of_round

MIN_ROUNDS = 3
"""Number of rounds that measure every candidate. Later rounds measure only candidates that may still be picked."""

_WANTED_ROUNDS = 6
_SHORTEST_S, _LONGEST_S = 0.1, 2.0


def setting_combinations(
    workers: Iterable[int],
    prefetch: Sequence[int],
    threads: Iterable[int],
    batch_size: int | None,
    current_settings: CandidateSettings | None,
) -> list[CandidateSettings]:
    """Return all combinations of loader settings to measure, ordered by their number of workers.

    The result always contains loading in the main process, and ``current_settings`` if they are known.

    Args:
        workers: the values of ``num_workers`` to combine.
        prefetch: the values of ``prefetch_factor`` to combine with each number of workers.
        threads: the numbers of prefetching threads to measure without workers.
        batch_size: number of samples in a batch, for all candidates; None if a batch sampler defines the batches.
        current_settings: present loader settings of the training; None if these settings are not known.
    """
    way = partial(CandidateSettings, batch_size=batch_size)
    ways = {way(0), *([] if current_settings is None else [current_settings])}
    ways |= {way(count, ahead) for count in workers if count for ahead in prefetch}
    ways |= {way(0, prefetch_threads=count) for count in threads if count}
    return sorted(ways, key=lambda way: way.size)


def measure_settings(measured_dataset: MeasuredDataset, candidate: CandidateSettings, seconds: float) -> LoadingRate:
    """Load batches with some loader settings for about ``seconds`` seconds, and return the measured rate.

    The measurement may take longer, because every worker loads at least one batch.

    Raises:
        RuntimeError: worker processes could not be started or died.
        Exception: the user's dataset or ``collate_fn`` raised this error.
    """
    options = {
        **measured_dataset.options,
        "batch_size": candidate.batch_size,
        "prefetch_factor": candidate.prefetch_factor,
        "pin_memory": pinning_device() is not None,
    }
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        rate = measure_loading_rate(
            measured_dataset.dataset,
            EndlessSampler(len(measured_dataset.dataset), options),
            options,
            num_workers=candidate.num_workers,
            prefetch_threads=candidate.prefetch_threads,
            seconds=seconds,
            is_batched=measured_dataset.report.migrated,
        )
    if rate.lost_workers:
        raise RuntimeError(_reason_without_workers([str(warning.message) for warning in warned]))
    return rate


def _reason_without_workers(warned: Sequence[str]) -> str:
    text = next((message for message in warned if message.startswith("Worker processes cannot be started")), "")
    reason = text.partition("(")[2].rpartition(")")[0]
    return reason or "a worker process could not be started, or died"


def expected_measurement_seconds(
    candidate: CandidateSettings, batch_s: float, loading_s: float, start_s: float, cpus: int
) -> float:
    """Estimate how many seconds a single measurement of a candidate (combination of loader settings) takes.

    Args:
        candidate: the combination of settings to measure.
        batch_s: seconds that the main process needs to load a batch.
        loading_s: seconds of loading that the measurement should cover, after the start of the workers.
        start_s: seconds that the start of workers takes.
        cpus: number of CPUs that this process may use.
    """
    at_once = max(candidate.num_workers, candidate.prefetch_threads, 1)  # batches that are loaded in parallel
    turn = at_once * batch_s / min(at_once, cpus)
    return (start_s if candidate.num_workers else 0.0) + batch_s + turn + max(loading_s, turn)


@dataclass
class SettingsSweep:
    """Measures and compares combinations of loader settings for one dataset.

    Attributes:
        subject: the dataset and the arguments of its loader.
        candidates: the combinations of settings to measure. One of them is loading in the main process.
        seconds: time limit in seconds. If ``is_limited`` is False, the first :data:`MIN_ROUNDS` rounds always run, and
            may take longer.
        show: function that is called with progress messages.
        is_limited: whether the measurement always ends at the time limit, even if the first round is not complete. The
            default is False.
    """

    subject: MeasuredDataset
    candidates: Sequence[CandidateSettings]
    seconds: float
    show: Progress
    is_limited: bool = False

    def __post_init__(self) -> None:
        self.measured = [CandidateMeasurement(candidate) for candidate in self.candidates]
        self.rounds = 0
        self._cpu_shares: list[float] = []
        self._others: list[float] = []
        self._batch_s = 0.0  # seconds to load a batch in the main process

    @property
    def cpu_share(self) -> float | None:
        """Return CPU time / wall time of loading in the main process, 0 to 1; None if not measured.

        The value is the median over all measurements.
        """
        return median(self._cpu_shares) if self._cpu_shares else None

    @property
    def others(self) -> float | None:
        """Return the share (0 to 1) of the CPUs that other processes used, as a median over measurements.

        The result is None if this share is not known.
        """
        return median(self._others) if self._others else None

    def run(self) -> list[CandidateMeasurement]:
        """Repeat the measurements until more measurements are unlikely to change the pick, or the time is up.

        Raises:
            Exception: the user's code raised this error while the main process loaded a batch.
        """
        begun = time.monotonic()
        slice_s = min(max(self.seconds / (_WANTED_ROUNDS * len(self.measured)), _SHORTEST_S), _LONGEST_S)
        while True:
            began = time.monotonic()
            order = self._candidates_of_round()
            for number, configuration in enumerate(order, start=self.rounds * len(order)):
                if self.is_limited and number and time.monotonic() - begun > self.seconds:
                    return self._measured_in_time()
                # After `MIN_ROUNDS` rounds, the number of further rounds is not known, so the progress has no total.
                total = MIN_ROUNDS * len(order) if self.rounds < MIN_ROUNDS else 0
                self.show(ProgressStep(f"round {self.rounds + 1}: {configuration.candidate}", number, total))
                self._measure(configuration, slice_s)
                if self.rounds == 0 and configuration is self.measured[0] and self._batch_s:
                    self._report_duration(slice_s)
            self.rounds += 1
            now = time.monotonic()
            left = self.seconds - (now - begun)
            over = is_pick_conclusive(self.measured) or left < (now - began) / 2 or not self._contenders()
            if self.rounds >= MIN_ROUNDS and over:
                return self.measured
            if self.is_limited and left < (now - began) / 2:
                return self._measured_in_time()
            chosen = pick_smallest_best(self.measured)
            if chosen is not None:
                least = (MIN_ROUNDS - self.rounds) * (now - began)
                rest = max(left, least)
                self.show(ProgressStep("comparing", left_s=least))
                ahead = f"{chosen.candidate} is ahead with {mean_rate(chosen.rates).value:.0f} samples/s"
                time_left = f"; about {rest:.0f} s left" if rest >= 1 else ""
                self.show(f"round {self.rounds}: {ahead}{time_left}")

    def _measured_in_time(self) -> list[CandidateMeasurement]:
        """Keep and return only the candidates that were measured, or failed, before the time limit."""
        self.measured = [one for one in self.measured if one.rates or one.error is not None]
        return self.measured

    def _candidates_of_round(self) -> list[CandidateMeasurement]:
        """Return the candidates (combinations of settings) that the next round measures, in order.

        The result omits candidates that failed. After :data:`MIN_ROUNDS` rounds, the result also omits candidates whose
        95 % interval shows that they are more than 5 % slower than the best candidate.
        """
        contenders = self._contenders() if self.rounds >= MIN_ROUNDS else self.measured
        return order_of_round([one for one in contenders if one.error is None], self.rounds)

    def _contenders(self) -> list[CandidateMeasurement]:
        placed = zip(self.measured, compare_with_best(self.measured), strict=True)
        return [
            configuration
            for configuration, comparison in placed
            if not (comparison.conclusive and comparison.outcome in (SettingsOutcome.BELOW, SettingsOutcome.FAILED))
        ]

    def _measure(self, configuration: CandidateMeasurement, slice_s: float) -> None:
        watch = BackgroundLoadWatch()
        try:
            with watch.watching():
                rate = measure_settings(self.subject, configuration.candidate, slice_s)
        except Exception as error:
            if configuration.candidate.is_in_main_process:  # no worker can load a dataset that fails here
                raise
            configuration.error = _reason_of_error(error)
            configuration.rates.clear()
            self.show(f"{configuration.candidate} could not be measured: {configuration.error}")
            return
        others = watch.share_of_others()
        if others is not None:
            self._others.append(others)
        if configuration.candidate.is_in_main_process:
            self._cpu_shares.append(rate.cpu_share)
            self._batch_s = rate.seconds / rate.batches
        configuration.rates.append(rate.samples_per_second)
        configuration.first_batch_s.append(rate.first_s)

    def _report_duration(self, slice_s: float) -> None:
        """Show how long the measurement will probably take, computed from the time that one batch takes."""
        start_s = worker_start_seconds(start_method(self.subject.options))
        cpus = usable_cpus()
        least = MIN_ROUNDS * sum(
            expected_measurement_seconds(configuration.candidate, self._batch_s, slice_s, start_s, cpus)
            for configuration in self.measured
        )
        self.show(ProgressStep("reading", left_s=least))
        rate = (self.measured[0].candidate.batch_size or 1) / self._batch_s
        beyond = cut = ""
        if least > 1.5 * self.seconds:
            if self.is_limited:
                cut = f"; tune measures only the configurations that fit into {self.seconds:.0f} s"
            else:
                beyond = f" (more than the requested {self.seconds:.0f} s)"
        self.show(
            f"measuring {len(self.measured)} configurations of {self.subject.report.name} ({rate:.0f} samples/s in the "
            f"main process): the measurement takes about {max(least, self.seconds):.0f} s{beyond}, or less if the best "
            f"settings are clear early{cut}"
        )


def _reason_of_error(error: Exception) -> str:
    """Return the reason of an error in one line. For an error in a worker, return the last line of its traceback."""
    text = first_message_line(error)
    if text.startswith("Caught "):
        return str(error).strip().splitlines()[-1].strip()
    return text if isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"
