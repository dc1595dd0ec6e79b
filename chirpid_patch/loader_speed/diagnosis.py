"""A function that measures a loader, and searches for faster settings with copies of the loader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from chirpid_patch.loader_speed.advice import (
    SettingAdvice,
    advise_persistent_workers,
    advise_pinning,
    advise_prefetching,
)
from chirpid_patch.loader_speed.loader_copy import copy_loader, copy_with_batched_reading
from chirpid_patch.loader_speed.measure import Times, measure_batch_waits, shut_down_workers
from chirpid_patch.loading.limits import TORCH_PREFETCH, count_prefetched_batches, loader_length, worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.worker_start import why_workers_cannot_start
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.speed_comparison import costly_is_faster, order_of_round
from chirpid_patch.thresholds import NOTICEABLE, TIED_FOR_ADVICE
from chirpid_patch.torch_private import DataLoader

_FEWEST_BATCHES = 3
_MOST_BATCHES = 500
#: Largest number of changes to try. Each change is measured twice, in turns with the current settings.
_MOST_CHANGES = 5
#: Largest number of times that a loader without workers is read, if an epoch is shorter than the measurement.
_MOST_EPOCHS = 8


@dataclass(frozen=True)
class LoaderDiagnosis:
    """The measured speed of a loader, and the settings to change.

    Attributes:
        times: the results of ``DataLoaderPerformanceMonitor.time_batch_loading``, with times in seconds.
        findings: the settings to change; an empty tuple if no tried setting helps.
        notes: sentences that explain which settings were not tried, and why.
    """

    times: Times
    findings: tuple[SettingAdvice, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        times = self.times
        summary = (
            f"{1e3 * times['mean_batch_time']:.2f} ms a batch, {times['samples_per_second']:.0f} samples/s, "
            f"over {times['num_batches']} batches; the first batch arrived after {times['first_batch_time']:.2f} s"
        )
        return "\n".join(
            (summary, *(map(str, self.findings or ["the measurements suggest no change of the settings"])), *self.notes)
        )


def diagnose_dataloader_speed(
    dataloader: Any,
    *,
    num_batches: int = 20,
    seconds: float = 5.0,
    step_seconds: float | None = None,
    verbose: bool = True,
) -> LoaderDiagnosis:
    """Measure how fast a loader is, and find settings that make the loader faster.

    The function measures how long a loop waits for each batch after the first batch. Then the function measures copies
    of the loader with other numbers of workers, and with batched reading. The function measures each copy in turns with
    a copy that has the current settings. The function reports only settings that were faster, or as fast with fewer
    processes. If new worker processes would run the main script again, the function does not try more workers. This
    happens with the start methods ``spawn`` and ``forkserver`` if the script has no ``if __name__ == "__main__":``.

    The function does not change a PyTorch ``DataLoader``, its random generators or its samplers. Counters and open
    files of the dataset may change. If ``dataloader`` is not a ``DataLoader``, the function measures ``dataloader``
    itself, and tries no other settings.

    Args:
        dataloader: the loader, or an object whose attribute ``loader`` is the loader, such as a ``DevicePrefetcher``.
        num_batches: number of batches for which to measure the wait.
        seconds: approximate number of seconds for all trials of other settings. With too few seconds, the function
            omits trials, or measures fewer batches.
        step_seconds: seconds of a training step without loading; None: unknown. With this number, the function
            estimates the share of the training time in which the training waits for batches. The function tries other
            numbers of workers and batched reading only if this share is above 5 %.
        verbose: whether to print the result.

    Returns:
        A ``LoaderDiagnosis`` with times, findings and notes.

    Raises:
        ValueError: the loader is empty, or an argument is not above 0.
    """
    if num_batches < 1 or seconds <= 0 or (step_seconds is not None and step_seconds <= 0):
        raise ValueError("num_batches, seconds and step_seconds must be above 0")
    loader = dataloader
    while not isinstance(loader, DataLoader) and isinstance(getattr(loader, "loader", None), DataLoader):
        loader = loader.loader
    if isinstance(loader, DataLoader):
        diagnosis = _Diagnosis(loader, num_batches, seconds, step_seconds).result()
    else:
        times, _ = measure_batch_waits(loader, num_batches)
        note = f"no other settings were tried, because the loader is a {type(loader).__name__} and not a DataLoader"
        diagnosis = LoaderDiagnosis(times, (), (note,))
    if verbose:
        print(diagnosis)
    return diagnosis


class _Diagnosis:
    def __init__(self, loader: DataLoader[Any], num_batches: int, seconds: float, step_seconds: float | None) -> None:
        self._loader = loader
        self._seconds = seconds
        self._step_seconds = step_seconds
        self._notes: list[str] = []
        self._times = _time(copy_loader(loader), num_batches)

    def result(self) -> LoaderDiagnosis:
        """Try other settings, and return the diagnosis."""
        findings = self._find_faster_modes() if self._can_try() else []
        without_workers = any(finding.setting == "num_workers" and not finding.suggested for finding in findings)
        others = [
            None if without_workers else self._start_up(),
            self._check_prefetching(),
            None
            if getattr(self._loader, "pins_own_batches", False)
            else advise_pinning(self._loader.pin_memory, pinning_device()),
        ]
        findings += [one for one in others if one is not None]
        if not self._limits_training():
            self._notes.append("loading is faster than the training steps: faster loading would save no time")
        return LoaderDiagnosis(self._times, tuple(findings), tuple(dict.fromkeys(self._notes)))

    def _limits_training(self) -> bool:
        """Return whether the training waits for batches in more than 5 % of its time; True if this share is unknown."""
        step = self._step_seconds
        if step is None:
            return True
        load = float(self._times["mean_batch_time"])
        wait = max(load - step, 0.0) if worker_processes(self._loader) else load
        return wait > NOTICEABLE * (step + wait)

    def _can_try(self) -> bool:
        if isinstance(self._loader.dataset, IterableDataset):
            self._notes.append(
                "no other number of workers was tried, because the samples of an iterable dataset depend on this number"
            )
            return False
        return self._limits_training()

    def _find_faster_modes(self) -> list[SettingAdvice]:
        """Return the loading modes that were faster, or as fast with fewer processes."""
        now = worker_processes(self._loader)
        best, ratio = self._find_worker_count(now)
        found = []
        if best != now:
            why = f"loading was {ratio:.2f} times as fast as with the current number"
            found.append(SettingAdvice("num_workers", now, best, why))
        if not isinstance(self._loader, BatchedDataLoader):
            at_once = self._speed_ratio(None)
            if costly_is_faster(ratio, at_once, TIED_FOR_ADVICE):
                kind, suggested = type(self._loader).__name__, "OptimalDataLoaderFactory.create_training_loader"
                why = f"batched reading was {at_once:.2f} times as fast as the current loader"
                found.append(SettingAdvice("loader", kind, suggested, why))
        return found

    def _find_worker_count(self, now: int) -> tuple[int, float]:
        """Return the best number of workers, and its speed as a multiple of the current speed.

        ``now`` is the current number. If loading without workers is as fast as with ``now`` workers, the best number is
        0. Otherwise, the method tries larger numbers, and stops at a number that is not clearly faster than the number
        before. The best number is the last number that was clearly faster. If no larger number was clearly faster than
        ``now``, the method tries half of ``now``. If half is as fast as ``now``, the best number is half of ``now``,
        else ``now``.
        """
        if now and not costly_is_faster(alone := self._speed_ratio(0), 1.0):
            return 0, alone
        best, ratio = now, 1.0
        for count in self._larger_counts(now):
            faster = self._speed_ratio(count)
            if not costly_is_faster(ratio, faster, TIED_FOR_ADVICE):
                break
            best, ratio = count, faster
        if best == now and now >= 2 and not costly_is_faster(half := self._speed_ratio(now // 2), 1.0):
            return now // 2, half
        return best, ratio

    def _larger_counts(self, now: int) -> list[int]:
        """Return the numbers of workers above ``now`` to try; an empty list if no workers can be started."""
        context = {"multiprocessing_context": self._loader.multiprocessing_context}
        refused = why_workers_cannot_start(context, self._seconds / _MOST_CHANGES)
        if refused is not None:
            self._notes.append(refused)
        return [count for count in (2, 4, 8) if count > now and refused is None]

    def _speed_ratio(self, num_workers: int | None) -> float:
        """Return the speed with ``num_workers`` workers, as a multiple of the current loader's speed.

        The function measures twice, and returns the smaller ratio. If ``seconds`` is too short, or an epoch has too few
        batches for the measurement, the result is 0, so that the current number of workers stays.

        Args:
            num_workers: number of workers; None: batched reading.
        """
        mean, seconds = float(self._times["mean_batch_time"]), self._seconds / (4 * _MOST_CHANGES)
        batches = min(int(seconds / max(mean, 1e-9)), _MOST_BATCHES)
        if batches < _FEWEST_BATCHES:
            wanted = math.ceil(_FEWEST_BATCHES * 4 * _MOST_CHANGES * mean)
            self._notes.append(f"{self._seconds:g} s are not enough to try other settings: pass seconds={wanted}")
            return 0.0
        ratios = []
        for number in range(2):
            batched = num_workers is None
            other = copy_with_batched_reading(self._loader) if batched else copy_loader(self._loader, num_workers)
            loaders = other, copy_loader(self._loader)
            times = {i: _time(loaders[i], _measurable(loaders[i], batches)) for i in order_of_round(range(2), number)}
            if times[0]["head_start_batches"] or times[0]["start_up_included"]:
                self._notes.append("an epoch is too short to measure whether another number of workers helps")
                return 0.0
            ratios.append(float(times[0]["samples_per_second"]) / max(times[1]["samples_per_second"], 1e-9))
        return min(ratios)

    def _start_up(self) -> SettingAdvice | None:
        if not worker_processes(self._loader) or self._loader.persistent_workers:
            return None
        batches = loader_length(self._loader)
        if batches is None:
            return None
        return advise_persistent_workers(self._times, worker_processes(self._loader), batches)

    def _check_prefetching(self) -> SettingAdvice | None:
        if not worker_processes(self._loader) or self._step_seconds is None:
            return None
        prefetch = self._loader.prefetch_factor or TORCH_PREFETCH
        return advise_prefetching(self._times, worker_processes(self._loader), prefetch, self._step_seconds)


def _measurable(loader: DataLoader[Any], batches: int) -> int:
    """Return the number of batches of ``loader`` whose waits can be measured, but at most ``batches``.

    While the loop waits for the first batch, workers also load the next batches. The waits for these batches do not
    count.
    """
    length = loader_length(loader)
    if not worker_processes(loader) or length is None:
        return batches
    return max(min(batches, length - 1 - count_prefetched_batches(loader)), 1)


def _time(loader: DataLoader[Any], num_batches: int) -> Times:
    epochs = 1 if worker_processes(loader) else _MOST_EPOCHS
    try:
        return measure_batch_waits(loader, num_batches, epochs=epochs)[0]
    finally:
        shut_down_workers(loader)
