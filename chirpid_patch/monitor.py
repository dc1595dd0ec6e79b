"""What loading costs: the wait for each batch, GPU utilisation and memory (R-000-3.1).

The guide's `time_batch_loading` starts its clock after the batch has arrived. Here the clock runs while the caller
waits for the next batch, and the start of a loader is kept apart from its rate.
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
from chirpid_patch.machine.polling import repeated
from chirpid_patch.machine.process_memory import MemoryReading, process_memory
from chirpid_patch.randomness.random_states import unmoved_generators

# The guide's candidates. Those over the CPUs at hand are left out, pinning is dropped where nothing can use
# it.
_GUIDE_CONFIGURATIONS: tuple[Mapping[str, Any], ...] = (
    {"num_workers": 0, "pin_memory": False},
    {"num_workers": 4, "pin_memory": True, "persistent_workers": True},
    {"num_workers": 8, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 4},
    {"num_workers": 12, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 6},
)


@dataclass(frozen=True)
class UsageSample:
    """Memory of this process and its workers, and the GPUs, at `seconds` after watching began."""

    seconds: float
    memory: MemoryReading | None
    gpu: GpuStatus


@dataclass
class UsageWatch:
    """The samples taken while a `DataLoaderPerformanceMonitor.watch` block ran, oldest first."""

    samples: list[UsageSample]

    @property
    def mean_gpu_utilization(self) -> float | None:
        """Mean over the samples in percent; None when no GPU reported one (`samples[-1].gpu` says why)."""
        busy = [sample.gpu.utilization_percent for sample in self.samples]
        known = [value for value in busy if value is not None]
        return float(np.mean(known)) if known else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """The most memory seen in any sample; None where this system does not tell (install psutil)."""
        return max((sample.memory.bytes for sample in self.samples if sample.memory), default=None)


class DataLoaderPerformanceMonitor:
    """Monitor DataLoader performance and utilisation.

    `metrics` gathers what was measured, in order: `batch_loading_times` (seconds waited for each batch in a
    rate), `memory_usage` (bytes, this process with its workers) and `gpu_utilization` (percent; stays empty
    without a GPU).
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = {
            "batch_loading_times": [],
            "gpu_utilization": [],
            "memory_usage": [],
        }

    def gpu_status(self) -> GpuStatus:
        """The visible GPUs now; without one, `reason` says why and `str()` of it starts with "no GPU"."""
        return gpu_status()

    def memory_status(self) -> MemoryReading | None:
        """Memory of this process and those it started, now; of this one alone, or None, if not to be had."""
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

        The first batch is start-up and not part of the rate. A loader with workers has batches under way by then
        (`num_workers * prefetch_factor`), for which the waits are short whatever the rate: as many go by unmeasured
        first, where the loader is long enough. Global random states, and the loader's own generators, are as before
        afterwards. All else is as after any iteration: persistent workers stay, and an epoch was begun.

        Args:
            dataloader: the loader. A shorter one than asked for gives fewer waits.
            num_batches: how many waits to measure.
            epochs: how often a short loader may be iterated over to get them.

        Returns:
            `mean_batch_time`, `std_batch_time` (population), `p50_batch_time`, `p99_batch_time`, `total_time`: of the
            waits, in seconds; `samples_per_second` over them; `num_batches`: the waits really measured;
            `first_batch_time`: seconds from asking for an iterator to its first batch; `head_start_batches`: how many
            of the measured batches were under way before (they flatter the workers); `start_up_included`: True only
            for a loader of one batch an epoch that starts workers for it each time.

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
        """Sample memory and GPUs on a thread while the block runs, once at least and once more at its end.

        Samples are `interval_s` seconds (above 0, else ValueError) apart, and more where reading is slow: it takes
        about 5 % of a core at most. They are also added to `metrics` when the block ends.
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
                with repeated(sample, interval_s, "chirpid-usage-watch"):
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

        Every round measures each configuration once, every second round in reverse order, so that a machine that
        changes its speed does so for all; each loader is built anew and its workers are shut down after it.

        Args:
            dataset: a map-style dataset.
            batch_size: samples in a batch, the same for all.
            configs: DataLoader arguments of each candidate. By default the guide's, without those that ask for more
                workers than there are CPUs for this process, and what `OptimalDataLoaderFactory` chooses itself.
            num_batches: waits to measure in each round, as in `time_batch_loading`.
            rounds: how often each is measured, at least 1 (ValueError).
            verbose: print what is tested and what is left out.

        Returns:
            `config_1`, `config_2`, …: the configuration with its figures (those of `time_batch_loading`), each the
            median of the rounds, and `rounds`. One that fails has `error` instead of figures. The default candidates
            also say their `loader`: "plain" (PyTorch's own) or "factory".
        """
        if rounds < 1:
            raise ValueError("rounds must be at least 1")
        say = print if verbose else _silent
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
                except Exception as error:  # whatever a configuration breaks on is its result
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
        with unmoved_generators(dataset):
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
    """The median of each time or rate; counts and flags, the same in every round, from the first."""
    return {
        key: float(np.median([taken[key] for taken in rounds])) if isinstance(value, float) else value
        for key, value in rounds[0].items()
    }


def _silent(message: str) -> None:
    """Print nothing."""
