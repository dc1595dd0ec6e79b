"""Find the best number of workers for a loader that makes the training wait, with the measurements of ``tune``."""

from __future__ import annotations

from typing import Any

from chirp_migrate.console.progress import Progress
from chirp_migrate.doctor.recording import LoaderPass, WorkerCountTimings
from chirp_migrate.tune.measured_dataset import prepare_loader_measurement
from chirp_migrate.tune.plateau import compare_with_best, is_pick_conclusive, pick_smallest_best
from chirp_migrate.tune.request import SettingsToMeasure
from chirp_migrate.tune.sweep import SettingsSweep, expected_measurement_seconds, setting_combinations
from chirp_migrate.tune.tune_report import CandidateSettings, SettingsOutcome, mean_rate
from chirpid_patch.loading.limits import TORCH_PREFETCH
from chirpid_patch.loading.worker_start import start_method, worker_start_seconds
from chirpid_patch.machine.cpus import usable_cpus

_ROUNDS = 3
"""Number of measurement rounds that must fit into the time. Two are necessary, but the estimate may be too low."""
_MEASUREMENT_S = 0.2


def measure_worker_counts(
    loader: Any, loader_pass: LoaderPass, batch_s: float, seconds: float, progress: Progress
) -> WorkerCountTimings | None:
    """Measure how fast a loader is with different numbers of workers.

    Args:
        loader: a loader that the training used and whose workers have ended.
        loader_pass: the recording of a training epoch with this loader.
        batch_s: seconds that a process needs to read a batch. The function uses this value to estimate the duration of
            the measurement.
        seconds: time limit of the measurement in seconds. If not all numbers of workers fit into this time, the
            function skips the largest numbers.
        progress: function that is called with progress messages.

    Returns:
        The loading times with the best and with the present number of workers; None if the measurement does not show
        which number is best.

    Raises:
        TaskNotPossible: the loader cannot be measured, because its dataset is an ``IterableDataset``.
        Exception: the user's code raised this error while the main process loaded batches.
    """
    subject = prepare_loader_measurement(loader, "training")
    now = subject.report.now
    candidates = setting_combinations(
        SettingsToMeasure().workers, (TORCH_PREFETCH,), (), subject.report.batch_size, now
    )
    start_s = worker_start_seconds(start_method(subject.options))

    def estimated_seconds(tried: list[CandidateSettings]) -> float:
        return _ROUNDS * sum(
            expected_measurement_seconds(one, batch_s, _MEASUREMENT_S, start_s, usable_cpus()) for one in tried
        )

    while candidates and estimated_seconds(candidates) > seconds:
        largest = next((one for one in reversed(candidates) if one != now and not one.is_in_main_process), None)
        if largest is None:
            return None
        candidates.remove(largest)
    if len(candidates) < 2:
        return None
    sweep = SettingsSweep(subject, candidates, seconds, progress, is_limited=True)
    measured = sweep.run()
    placed = zip(measured, compare_with_best(measured), strict=True)
    present, compared = next((each for each in placed if each[0].candidate == now and each[0].rates), (None, None))
    if present is None or compared is None or sweep.rounds < 2:
        return None
    is_slower = compared.outcome is SettingsOutcome.BELOW
    best = pick_smallest_best(measured) if is_slower else present
    if best is None or not (compared.conclusive if is_slower else is_pick_conclusive(measured)):
        return None
    tried = sorted({one.candidate.num_workers for one in measured if one.rates})
    if len(tried) < 2:
        return None
    samples = sum(loader_pass.sizes) if loader_pass.is_complete else len(loader.dataset)
    now_s, best_s = (samples / mean_rate(one.rates).value for one in (present, best))
    return WorkerCountTimings(loader_pass.loader, best.candidate.num_workers, now_s, best_s, tried)
