"""The cost of loading: the wait for each batch, GPU utilisation and memory.

The guide's `time_batch_loading` starts its clock after the batch has arrived. Here the clock runs while the caller
waits for the next batch, and the start of a loader is measured apart from its rate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loader_speed.measure import measure, shut_down_workers
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.machine.nvml import GpuProbe, GpuStatus, gpu_status
from chirpid_patch.machine.polling import call_repeatedly
from chirpid_patch.machine.process_memory import MemoryReading, process_memory
from chirpid_patch.randomness.random_states import restored_generators

# The guide's candidates, without those above the number of CPUs; without pinning if no device can use it.
_GUIDE_CONFIGURATIONS: tuple[Mapping[str, Any], ...] = (
    {"num_workers": 0, "pin_memory": False},
    {"num_workers": 4, "pin_memory": True, "persistent_workers": True},
    {"num_workers": 8, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 4},
    {"num_workers": 12, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 6},
)


@dataclass(frozen=True)
class UsageSample:
    """Memory of this process and its workers, and of the GPUs, at `seconds` after the watch began."""

    seconds: float
    memory: MemoryReading | None
    gpu: GpuStatus


@dataclass
class UsageWatch:
    """The readings of a `DataLoaderPerformanceMonitor.watch` block, oldest first."""

    samples: list[UsageSample]

    @property
    def mean_gpu_utilization(self) -> float | None:
        """Return the mean over the readings in percent.

        The result is None if no GPU reported its utilisation: see `samples[-1].gpu`.
        """
        busy = [sample.gpu.utilization_percent for sample in self.samples]
        known = [value for value in busy if value is not None]
        return float(np.mean(known)) if known else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return the largest memory of all readings in bytes; None if this system needs psutil to read it."""
        return max((sample.memory.bytes for sample in self.samples if sample.memory), default=None)


class DataLoaderPerformanceMonitor:
    """Monitor DataLoader performance and utilisation.

    Attributes:
        metrics: measured values, in order: `batch_loading_times` (seconds of waiting for each batch of a rate),
            `memory_usage` (bytes, this process with its workers) and `gpu_utilization` (percent; empty without a GPU).
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = {
            "batch_loading_times": [],
            "gpu_utilization": [],
            "memory_usage": [],
        }

    def gpu_status(self) -> GpuStatus:
        """Return the visible GPUs; without one, `reason` explains why, and `str()` of it starts with "no GPU"."""
        return gpu_status()

    def memory_status(self) -> MemoryReading | None:
        """Return the memory of this process and its children; without psutil, of this process alone, or None."""
        for include_children in (True, False):
            try:
                return process_memory(include_children=include_children)
            except NotImplementedError:  # no psutil here
                continue
        return None

    def time_batch_loading(
        self, dataloader: Any, num_batches: int = 10, *, epochs: int = 1
    ) -> dict[str, float | int | bool]:
        """Time the wait for each next batch of a loader (or of any iterable of batches).

        The first batch is start-up and not part of the rate. At that time a loader with workers has prefetched
        `num_workers * prefetch_factor` batches, whose waits are short at every rate. The function skips these batches,
        if the loader is long enough. It restores the global random states and the loader's own generators. Persistent
        workers stay alive, and one epoch of the loader has begun.

        Args:
            dataloader: the loader. A short loader leads to fewer waits.
            num_batches: number of waits to measure.
            epochs: how often a short loader may be iterated over.

        Returns:
            `mean_batch_time`, `std_batch_time` (population), `p50_batch_time`, `p99_batch_time`, `total_time`:
            statistics of the waits, in seconds; `samples_per_second` over these waits; `num_batches`: the number of
            measured waits; `first_batch_time`: seconds from creating an iterator to its first batch;
            `head_start_batches`: number of measured batches that were prefetched before (they make workers look
            faster); `start_up_included`: True only for a loader with one batch an epoch that starts workers each time.

        Raises:
            ValueError: the loader has no batch, or `num_batches` or `epochs` is below 1.
        """

        def at_end() -> None:  # of a pass, while its workers are still there
            self._record_usage(self.memory_status(), self.gpu_status())

        times, seconds = measure(dataloader, num_batches, epochs=epochs, at_end=at_end)
        self.metrics["batch_loading_times"] += seconds
        return dict(times)

    def _record_usage(self, memory: MemoryReading | None, gpu: GpuStatus) -> None:
        if memory is not None:
            self.metrics["memory_usage"].append(memory.bytes)
        if gpu.utilization_percent is not None:
            self.metrics["gpu_utilization"].append(gpu.utilization_percent)

    @contextmanager
    def watch(self, interval_s: float = 0.2) -> Iterator[UsageWatch]:
        """Read memory and GPUs in a thread while the block runs, at least once, and once more at its end.

        The readings are `interval_s` seconds apart, or more if they are slow: they take at most about 5 % of a core.
        The readings are also added to `metrics` when the block ends.

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
        """Compare loader configurations on the same samples of one dataset, in order, without shuffling.

        Every round measures each configuration once, and every second round in reverse order, so that a machine that
        changes its speed affects all alike. Each measurement builds a new loader, and shuts its workers down.

        Args:
            dataset: a map-style dataset.
            batch_size: samples in a batch, the same for all.
            configs: arguments of DataLoader for each candidate. By default those of the guide, except candidates with
                more workers than CPUs for this process, and the choice of `OptimalDataLoaderFactory`.
            num_batches: waits to measure in each round, as in `time_batch_loading`.
            rounds: how often each candidate is measured, at least 1.
            verbose: print the tested and the omitted candidates.

        Returns:
            `config_1`, `config_2`, …: the configuration with its values (those of `time_batch_loading`), each the
            median of the rounds, and `rounds`. A candidate that fails has `error` instead of values. The default
            candidates also have `loader`: "plain" (PyTorch's own) or "factory".

        Raises:
            ValueError: `rounds` is below 1.
        """
        if rounds < 1:
            raise ValueError("rounds must be at least 1")
        say = print if verbose else _print_nothing
        candidates = _default_candidates(say) if configs is None else [dict(config) for config in configs]
        taken: list[list[dict[str, float | int | bool]]] = [[] for _ in candidates]
        errors: dict[int, str] = {}
        for number in range(rounds):
            order = range(len(candidates)) if number % 2 == 0 else reversed(range(len(candidates)))
            for i in order:
                if i in errors:
                    continue
                if number == 0:
                    say(f"Testing configuration {i + 1}/{len(candidates)}: {candidates[i]}")
                try:
                    taken[i].append(self._time_candidate(dataset, batch_size, candidates[i], num_batches))
                except Exception as error:  # any error of a configuration is its result
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
        with restored_generators(dataset):
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


def _default_candidates(say: Any) -> list[dict[str, Any]]:
    cpus = usable_cpus()
    candidates: list[dict[str, Any]] = []
    for config in _GUIDE_CONFIGURATIONS:
        if config["num_workers"] > cpus:
            say(f"Left out: {config['num_workers']} workers, more than the {cpus} CPUs this process may use")
            continue
        candidates.append(
            {"loader": "plain", **config, "pin_memory": config["pin_memory"] and pinning_device() is not None}
        )
    candidates.append({"loader": "factory"})
    return candidates


def _medians(rounds: Sequence[Mapping[str, float | int | bool]]) -> dict[str, float | int | bool]:
    """Return the median of each time and rate over the rounds, with the counts and flags of the first round."""
    return {
        key: float(np.median([taken[key] for taken in rounds])) if isinstance(value, float) else value
        for key, value in rounds[0].items()
    }


def _print_nothing(message: str) -> None:
    """Print nothing."""
