"""Measurements of data loading: the wait for each batch, GPU utilisation and memory.

The best-practice guide for ChirpID also has a function `time_batch_loading`. The guide's function starts its clock
after a batch has arrived, so it does not measure the wait for the batch. The clock of this module runs during the wait.
The start-up time of a loader does not count for the rate in samples per second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loader_speed.measure import measure_batch_waits, shut_down_workers
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.machine.nvml import GpuProbe, GpuStatus, gpu_status
from chirpid_patch.machine.polling import call_repeatedly
from chirpid_patch.machine.process_memory import MemoryReading, process_memory
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.speed_comparison import order_of_round
from chirpid_patch.torch_private import DataLoader

# The configurations that the best-practice guide compares.
_GUIDE_CONFIGURATIONS: tuple[Mapping[str, Any], ...] = (
    {"num_workers": 0, "pin_memory": False},
    {"num_workers": 4, "pin_memory": True, "persistent_workers": True},
    {"num_workers": 8, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 4},
    {"num_workers": 12, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 6},
)


@dataclass(frozen=True)
class UsageSample:
    """A reading of memory and GPU utilisation.

    Attributes:
        seconds: time of the reading, in seconds after the start of the `with` block.
        memory: memory of this process and its worker processes; None if the platform requires psutil and psutil is
            missing.
        gpu: utilisation and memory of the visible GPUs.
    """

    seconds: float
    memory: MemoryReading | None
    gpu: GpuStatus


@dataclass
class UsageWatch:
    """The readings of a `with DataLoaderPerformanceMonitor().watch()` block, oldest first."""

    samples: list[UsageSample]

    @property
    def mean_gpu_utilization(self) -> float | None:
        """Return the mean GPU utilisation of all readings, in percent.

        If no GPU reported its utilisation, the result is None, and `samples[-1].gpu` contains the reason.
        """
        busy = [sample.gpu.utilization_percent for sample in self.samples]
        known = [value for value in busy if value is not None]
        return float(np.mean(known)) if known else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return the largest memory use of all readings, in bytes; None if no reading has a memory use."""
        return max((sample.memory.bytes for sample in self.samples if sample.memory), default=None)


class DataLoaderPerformanceMonitor:
    """Measure how fast a loader yields batches, and how much memory and GPU the process uses.

    Attributes:
        metrics: maps three names to lists of measured values, oldest first. `time_batch_loading` appends to all three
            lists, and `watch` appends to `memory_usage` and `gpu_utilization`. The list `batch_loading_times` has the
            seconds of waiting for each measured batch. The list `memory_usage` has the bytes of this process with its
            worker processes. The list `gpu_utilization` has the GPU utilisation in percent, and is empty if no GPU
            reports its utilisation.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = {
            "batch_loading_times": [],
            "gpu_utilization": [],
            "memory_usage": [],
        }

    def gpu_status(self) -> GpuStatus:
        """Return utilisation and memory of the visible GPUs.

        Without a visible GPU, the attribute `reason` of the result explains why, and `str(result)` starts with "no
        GPU".
        """
        return gpu_status()

    def memory_status(self) -> MemoryReading | None:
        """Return the memory of this process and its child processes.

        Without psutil, the result is the memory of this process alone. On Windows without psutil, the result is None.
        """
        for include_children in (True, False):
            try:
                return process_memory(include_children=include_children)
            except NotImplementedError:  # no psutil here
                continue
        return None

    def time_batch_loading(
        self, dataloader: Any, num_batches: int = 10, *, epochs: int = 1
    ) -> dict[str, float | int | bool]:
        """Measure how long a loop waits for each batch of a loader.

        The wait for the first batch is start-up time, and does not count for `samples_per_second`. When the first batch
        arrives, the workers have already prefetched `num_workers * prefetch_factor` further batches. The waits for
        these prefetched batches are short, so the function measures later batches instead. If the loader has too few
        later batches, some measured waits are for prefetched batches (see `head_start_batches`).

        The function restores the states of the global random generators and of the loader's own generators. Persistent
        workers stay alive after the call.

        Args:
            dataloader: a loader, or any iterable of batches.
            num_batches: number of batches for which to measure the wait. If the loader has fewer batches, the function
                measures fewer waits.
            epochs: largest number of passes over the loader. The function starts another pass only if the earlier
                passes had too few batches. A loader with a single batch is read at least twice, because its first wait
                is only start-up time.

        Returns:
            A dictionary with ten keys. `mean_batch_time`, `std_batch_time` (population standard deviation),
            `p50_batch_time`, `p99_batch_time` and `total_time` are statistics of the waits, in seconds.
            `samples_per_second` is the number of samples in the measured batches / `total_time`. `num_batches` is the
            number of measured waits. `first_batch_time` is the time from creating an iterator to its first batch, in
            seconds. `head_start_batches` is the number of measured batches that the workers had prefetched before the
            measurement. If this number is above 0, `samples_per_second` is too high. `start_up_included` is True if
            each measured wait includes start-up time, for example because each epoch has only one batch and starts new
            workers.

        Raises:
            ValueError: the loader is empty, or `num_batches` or `epochs` is below 1.
        """

        def at_end() -> None:  # the workers are still alive at this time
            self._record_usage(self.memory_status(), self.gpu_status())

        times, seconds = measure_batch_waits(dataloader, num_batches, epochs=epochs, at_end=at_end)
        self.metrics["batch_loading_times"] += seconds
        return dict(times)

    def _record_usage(self, memory: MemoryReading | None, gpu: GpuStatus) -> None:
        if memory is not None:
            self.metrics["memory_usage"].append(memory.bytes)
        if gpu.utilization_percent is not None:
            self.metrics["gpu_utilization"].append(gpu.utilization_percent)

    @contextmanager
    def watch(self, interval_s: float = 0.2) -> Iterator[UsageWatch]:
        """Read memory and GPU utilisation in a thread while the `with` block runs.

        The method also reads at the start and at the end of the block. After a slow reading, the thread waits longer
        than `interval_s`, so that the thread uses at most about 5 % of a CPU core. At the end of the block, the method
        adds the readings to `metrics`.

        Args:
            interval_s: seconds between two readings.

        Raises:
            ValueError: `interval_s` is not above 0.
        """
        if interval_s <= 0:
            raise ValueError("interval_s must be above 0 seconds")
        watch = UsageWatch([])
        with GpuProbe() as probe:
            begun = time.perf_counter()

            def sample() -> None:
                seconds = time.perf_counter() - begun
                watch.samples.append(UsageSample(seconds, self.memory_status(), probe.read()))

            sample()
            try:
                with call_repeatedly(sample, interval_s, "chirpid-usage-watch"):
                    yield watch
            finally:
                sample()
                for taken in watch.samples:
                    self._record_usage(taken.memory, taken.gpu)

    def benchmark_configurations(
        self,
        dataset: Any,
        batch_size: int,
        configs: Sequence[Mapping[str, Any]] | None = None,
        *,
        num_batches: int = 10,
        rounds: int = 3,
        verbose: bool = True,
    ) -> dict[str, dict[str, Any]]:
        """Compare loader configurations on the same samples of a dataset, without shuffling.

        Every round measures each configuration once. Every second round uses the reverse order, so that a slow change
        of the machine's speed affects all configurations alike. Each measurement builds a new loader, and ends the
        loader's workers.

        Args:
            dataset: a map-style dataset.
            batch_size: number of samples in a batch, for all configurations.
            configs: keyword arguments of `DataLoader` for each configuration. None: the configurations of the
                best-practice guide, and a loader of `OptimalDataLoaderFactory`. The method omits configurations of the
                guide with more workers than CPUs.
            num_batches: number of batches for which to measure the wait, for each configuration in a round.
            rounds: how often each configuration is measured, at least 1.
            verbose: whether to print which configurations are measured and which are omitted.

        Returns:
            A dictionary with the keys `config_1`, `config_2`, …. Each value is a dictionary with the arguments of a
            configuration, the medians of the results of `time_batch_loading`, and the number of `rounds`. If a
            configuration fails, the key `error` with the error text replaces the results. With `configs=None`, each
            dictionary also has the key `loader`: "plain" for PyTorch's own loader, "factory" for the loader of
            `OptimalDataLoaderFactory`.

        Raises:
            ValueError: `rounds` is below 1.
        """
        if rounds < 1:
            raise ValueError("rounds must be at least 1")
        report = print if verbose else lambda message: None
        candidates = _default_candidates(report) if configs is None else [dict(config) for config in configs]
        taken: list[list[dict[str, float | int | bool]]] = [[] for _ in candidates]
        errors: dict[int, str] = {}
        for number in range(rounds):
            for i in order_of_round(range(len(candidates)), number):
                if i in errors:
                    continue
                if number == 0:
                    report(f"Testing configuration {i + 1}/{len(candidates)}: {candidates[i]}")
                try:
                    taken[i].append(self._time_candidate(dataset, batch_size, candidates[i], num_batches))
                except Exception as error:  # the error is the result of the configuration
                    errors[i] = f"{type(error).__name__}: {error}"
        results: dict[str, dict[str, Any]] = {}
        for i, config in enumerate(candidates):
            figures = {"error": errors[i]} if i in errors else {**_medians(taken[i]), "rounds": rounds}
            results[f"config_{i + 1}"] = {**config, **figures}
        return results

    def _time_candidate(
        self, dataset: Any, batch_size: int, config: Mapping[str, Any], num_batches: int
    ) -> dict[str, float | int | bool]:
        arguments = {key: value for key, value in config.items() if key != "loader"}
        loader: DataLoader[Any]
        with restore_generators_after(dataset):
            if config.get("loader") == "factory":
                loader = OptimalDataLoaderFactory.create_training_loader(
                    dataset, batch_size=batch_size, shuffle=False, **arguments
                )
            else:
                loader = DataLoader(dataset, batch_size=batch_size, **arguments)
        try:
            return self.time_batch_loading(loader, num_batches)
        finally:
            shut_down_workers(loader)


def _default_candidates(report: Any) -> list[dict[str, Any]]:
    cpus = usable_cpus()
    candidates: list[dict[str, Any]] = []
    for config in _GUIDE_CONFIGURATIONS:
        if config["num_workers"] > cpus:
            report(f"{config['num_workers']} workers are not tested, because this process may use only {cpus} CPUs")
            continue
        candidates.append(
            {"loader": "plain", **config, "pin_memory": config["pin_memory"] and pinning_device() is not None}
        )
    candidates.append({"loader": "factory"})
    return candidates


def _medians(rounds: Sequence[Mapping[str, float | int | bool]]) -> dict[str, float | int | bool]:
    """Return the median of each time and rate over all rounds. Integers and booleans are those of the first round."""
    return {
        key: float(np.median([taken[key] for taken in rounds])) if isinstance(value, float) else value
        for key, value in rounds[0].items()
    }
