"""Define each metric of a verification (name, unit, method), and compute its value.

The report, the JSON document and the documentation use the definitions in :data:`MEASURES`. The command ``python -m
chirp_migrate.verify.measures.figures`` prints the definitions as a table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from chirp_migrate.stats.ratios import student_quantile
from chirp_migrate.training.watch.augmentation_cost import augmentation_share_of_loading
from chirp_migrate.verify.measures.metric_data import (
    AugmentationCost,
    EntryMeasures,
    MemoryGrowth,
    Metric,
    VersionMeasures,
)
from chirp_migrate.verify.spec import EntryPointTiming

MIB = 2**20


MEASURES: tuple[Metric, ...] = (
    Metric(
        "training_s", "s", "training time",
        "seconds of the user's own runs, computed from start-up time and epoch time of the timed rounds; in these "
        "rounds, nothing records the loaders",
        "R-000-5.2",
    ),
    Metric(
        "samples_per_s", "samples/s", "samples per second",
        "samples that training and validation took from their loaders in the timed epochs, divided by the "
        "time of these epochs",
        "R-000-3.1",
    ),
    Metric(
        "batches_per_s", "batches/s", "batches per second",
        "batches that training and validation took from their loaders in the timed epochs, divided by the time of "
        "these epochs",
        "R-004",
    ),
    Metric(
        "goodput_percent", "%", "goodput",
        "time of an epoch with zero-cost loading, in percent of the time of an epoch: the share that is not loading",
        "R-000-5.2",
    ),
    Metric(
        "epoch_s", "s", "epoch",
        "seconds from the start of a pass over a training loader to the end of the validation that follows; median",
        "R-000-5.2",
    ),
    Metric(
        "wait_p50_ms", "ms", "wait for a batch, median",
        "milliseconds from the request of a training batch to its arrival; without the first batch of each pass, "
        "which is start-up",
        "R-000-3.1",
    ),
    Metric("wait_p95_ms", "ms", "wait for a batch, 95th percentile", "of the waits of `wait_p50_ms`", "R-000-3.1"),
    Metric("wait_p99_ms", "ms", "wait for a batch, 99th percentile", "of the waits of `wait_p50_ms`", "R-000-3.1"),
    Metric(
        "wait_variation", "", "variation of the waits",
        "standard deviation of the waits of `wait_p50_ms`, divided by their mean", "R-000-5.2",
    ),
    Metric(
        "first_batch_ms", "ms", "time to the first batch",
        "milliseconds from creating an iterator of a training loader to its first batch, with the start of workers; "
        "median over passes",
        "R-000-3.1",
    ),
    Metric(
        "waiting_percent", "%", "share of time waiting",
        "all waits of training and validation for batches (first batches too), in percent of the time of the measured "
        "run",
        "R-004",
    ),
    Metric(
        "augmentation_ms", "ms", "augmentation per batch",
        "median time to load a batch with augmentation, minus the median time without it, both in one process; for the "
        "dataset with the largest difference",
        "R-004",
    ),
    Metric(
        "augmentation_percent", "%", "augmentation overhead",
        "augmentation per batch in percent of the time from batch to batch in training (waiting and computing); above "
        "100 if the augmentation runs parallel to the training",
        "R-004",
    ),
    Metric(
        "augmentation_of_loading_percent", "%", "augmentation in loading",
        "augmentation per batch in percent of the time to load an augmented batch without training", "R-004",
    ),
    Metric(
        "gpu_percent", "%", "GPU utilisation",
        "mean utilisation of the visible GPUs, which NVML reports about every 0.1 s while training runs",
        "R-000-5.2, R-004",
    ),
    Metric(
        "gpu_memory_mib", "MiB", "GPU memory",
        "largest memory in use on all visible GPUs together, which NVML reports about every 0.1 s", "R-000-3.1",
    ),
    Metric(
        "memory_mib", "MiB", "memory",
        "largest proportional set size (PSS: shared pages count once) of the training process with its workers, read "
        "about every 0.1 s; if the system has no PSS, the report names the kind of memory",
        "R-000-3.1",
    ),
    Metric(
        "resident_mib", "MiB", "resident memory",
        "largest sum of the resident memory of the training process and its workers; shared pages count once for each "
        "process",
        "R-000-3.1",
    ),
    Metric(
        "memory_slope_mib", "MiB/epoch", "memory growth",
        "growth of memory per epoch, from one reading at the end of each training pass but the first; least squares "
        "over all loaders, each with its own level, with a 95 % interval",
        "R-000-5.1",
    ),
    Metric(
        "lost_workers", "loaders", "loaders that lost workers",
        "loaders with a worker that died and was replaced, or that could not start; before the migration, the death "
        "of a worker ends the training",
        "R-000-5.2",
    ),
)  # fmt: skip


def metrics_of_timed_rounds(
    own_runs_s: float, timings: Sequence[tuple[EntryPointTiming, EntryPointTiming]]
) -> dict[str, float]:
    """Return the metrics of one version that come from the timed rounds.

    Args:
        own_runs_s: seconds of the user's own, full trainings of all entry points together.
        timings: timings of this version, each with the timing of the migrated version in the same round. The timing of
            the migrated version includes epochs with zero-cost loading.
    """
    found = {"training_s": own_runs_s}
    timed = [(visit, after) for visit, after in timings if visit.epochs_s]
    if timed:
        epochs_s = sum(statistics.median(visit.epochs_s) for visit, _ in timed)
        found["samples_per_s"] = sum(visit.samples for visit, _ in timed) / epochs_s
        found["batches_per_s"] = sum(visit.batches for visit, _ in timed) / epochs_s
    fed = [(visit, after) for visit, after in timed if after.cached_s]
    if fed:
        cached_s = sum(statistics.median(after.cached_s) for _, after in fed)
        found["goodput_percent"] = 100 * cached_s / sum(statistics.median(visit.epochs_s) for visit, _ in fed)
    return found


def metrics_of_measured_run(measures: VersionMeasures) -> dict[str, float | None]:
    """Return the metrics from the measured run of one version; a metric without a measurement is None or missing."""
    walks = [walk for entry in measures.entries.values() for walk in entry.walks]
    training = [walk for walk in walks if walk.role == "train" and walk.waits_s]
    waits = [wait for walk in training for wait in walk.waits_s[1:]]
    lengths = [seconds for entry in measures.entries.values() for seconds in epoch_seconds(entry)]
    seconds = sum(entry.seconds for entry in measures.entries.values())
    busy = [point.gpu_percent for point in measures.usage if point.gpu_percent is not None]
    slope = memory_growth_per_epoch(measures)
    return {
        "epoch_s": statistics.median(lengths) if lengths else None,
        **{f"wait_p{share}_ms": _percentile_ms(waits, share) for share in (50, 95, 99)},
        "wait_variation": float(np.std(waits) / np.mean(waits)) if len(waits) > 1 else None,
        "first_batch_ms": _percentile_ms([walk.waits_s[0] for walk in training], 50),
        "waiting_percent": 100 * sum(sum(walk.waits_s) for walk in walks) / seconds if seconds > 0 else None,
        **_costliest_augmentation(measures),
        "gpu_percent": statistics.fmean(busy) if busy else None,
        "gpu_memory_mib": _largest_mib(point.gpu_bytes for point in measures.usage),
        "memory_mib": _largest_mib(point.memory_bytes for point in measures.usage),
        "resident_mib": _largest_mib(point.resident_bytes for point in measures.usage),
        "memory_slope_mib": slope.value if slope is not None else None,
        "lost_workers": float(sum(entry.lost_workers for entry in measures.entries.values())),
    }


def epoch_seconds(entry: EntryMeasures) -> list[float]:
    """Return the seconds of each epoch of an entry point."""
    lengths: list[float] = []
    begun: float | None = None
    for walk in entry.walks:
        if walk.role == "train":
            begun = walk.begun_s
            lengths.append(walk.ended_s - begun)
        elif begun is not None:
            lengths[-1] = walk.ended_s - begun
    return lengths


def memory_growth_per_epoch(measures: VersionMeasures) -> MemoryGrowth | None:
    """Return the growth of memory per epoch; None if the training has too few epochs to compute an interval."""
    rows: list[tuple[float, float]] = []
    groups = 0
    for entry in measures.entries.values():
        readings: dict[int, list[int]] = {}  # at the end of each training pass, by loader
        for walk in entry.walks:
            if walk.role == "train" and walk.memory_bytes is not None:
                readings.setdefault(walk.loader, []).append(walk.memory_bytes)
        for _, *settled in readings.values():  # the first epoch fills caches and allocators
            if len(settled) > 1:
                groups += 1
                x = np.arange(len(settled)) - (len(settled) - 1) / 2
                y = np.array(settled) / MIB - np.mean(settled) / MIB
                rows += zip(x.tolist(), y.tolist(), strict=True)
    freedom = len(rows) - groups - 1
    if freedom < 1:
        return None
    x, y = np.array(rows).T
    spread = float(x @ x)
    value = float(x @ y) / spread
    left = y - value * x
    half = student_quantile(0.975, freedom) * math.sqrt(float(left @ left) / freedom / spread)
    return MemoryGrowth(value, value - half, value + half)


def seconds_of_augmentation(cost: AugmentationCost) -> float | None:
    """Return the seconds that augmentation adds to a batch, from medians of the rounds; None if not measured."""
    return statistics.median(cost.with_s) - statistics.median(cost.without_s) if cost.with_s else None


def metrics_table() -> str:
    """Return the definitions of all metrics as a Markdown table."""
    rows = [f"| `{one.name}` | {one.unit or '1'} | {one.title}: {one.method} | {one.requirement} |" for one in MEASURES]
    return "\n".join(
        ["| measure | unit | what it is and how it is measured | requirement |", "|---|---|---|---|", *rows]
    )


def _costliest_augmentation(side: VersionMeasures) -> dict[str, float | None]:
    """Return the augmentation metrics of the dataset whose augmentation takes longest; empty without augmentation."""
    costs = [(added, cost) for cost in side.augmentation if (added := seconds_of_augmentation(cost)) is not None]
    if not costs:
        return {}
    added, cost = max(costs, key=lambda pair: pair[0])
    entries = [entry for entry in side.entries.values() if cost.dataset in entry.augmentations]
    training = [walk for entry in entries for walk in entry.walks if walk.role == "train" and walk.waits_s]
    batches = sum(len(walk.waits_s) for walk in training)
    period = sum(walk.ended_s - walk.begun_s for walk in training) / batches if batches else None
    share = augmentation_share_of_loading(cost.with_s, cost.without_s)
    return {
        "augmentation_ms": 1e3 * added,
        "augmentation_percent": None if period is None else 100 * added / period,
        "augmentation_of_loading_percent": None if share is None else 100 * share,
    }


def _percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    return 1e3 * float(np.percentile(seconds, share)) if seconds else None


def _largest_mib(values: Iterable[int | None]) -> float | None:
    """Return the largest number of bytes, converted to MiB; None if all values are None."""
    most = max((value for value in values if value is not None), default=None)
    return None if most is None else most / MIB


if __name__ == "__main__":
    print(metrics_table())
