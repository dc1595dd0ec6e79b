"""Define the metrics of ``verify``, and compute their values.

The module also judges two targets: the GPU utilisation is high enough, and no loader loses a worker process.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chirp_migrate.verify.spec import EntryPointTiming

MIB = 2**20

MET, NOT_MET, NOT_MEASURABLE = "met", "not met", "not measurable here"

_GPU_PERCENT = 80.0
"""Target: the GPU utilisation of the training must be above this value, in percent."""


@dataclass(frozen=True)
class Metric:
    """The definition of a metric.

    Attributes:
        name: key in the JSON document.
        unit: unit of the value, such as ``ms``; an empty string for a number without a unit.
        title: short name of the metric in reports.
        method: description of how ``verify`` measures the metric, in one sentence.
        requirement: number of the project's requirement that defines the metric, such as ``R-004``.
    """

    name: str
    unit: str
    title: str
    method: str
    requirement: str


@dataclass(frozen=True)
class TargetVerdict:
    """The verdict on whether the migrated version meets a target (a required value).

    Attributes:
        requirement: number of the project's requirement that defines the target, such as ``R-004``.
        target: the target as text, such as ``GPU utilisation above 80 %``.
        verdict: one of :data:`MET`, :data:`NOT_MET`, :data:`NOT_MEASURABLE`.
        value: measured value, in the unit of the target; None if the value was not measured.
        why: description of the measured value, or the reason why the value was not measured.
    """

    requirement: str
    target: str
    verdict: str
    value: float | None
    why: str


METRICS = tuple(Metric(name, unit, title, method, requirement) for name, unit, title, requirement, method in (
    ("training_s", "s", "training time", "R-000-5.2",
     "seconds that all full trainings of the user would take, computed from start-up time and epoch time"),
    ("samples_per_s", "samples/s", "samples per second", "R-000-3.1",
     "samples that training and validation took from their loaders in the timed epochs, divided by the time of these "
     "epochs"),
    ("batches_per_s", "batches/s", "batches per second", "R-004",
     "batches that training and validation took from their loaders in the timed epochs, divided by the time of these "
     "epochs"),
    ("goodput_percent", "%", "goodput", "R-000-5.2",
     "time of an epoch with zero-cost loading (every loader repeats one batch from memory), in percent of the time of "
     "a normal epoch; 100 % minus this value is the share of loading"),
    ("epoch_s", "s", "epoch", "R-000-5.2", "median seconds of the timed epochs, including validation"),
    ("wait_p50_ms", "ms", "wait for a batch, median", "R-000-3.1",
     "median time from the request of a training batch to its arrival; the first batch of each pass does not count, "
     "because its wait includes the start of workers"),
    ("wait_p95_ms", "ms", "wait for a batch, 95th percentile", "R-000-3.1",
     "95th percentile of the waits for training batches, computed from the same waits as `wait_p50_ms`"),
    ("wait_p99_ms", "ms", "wait for a batch, 99th percentile", "R-000-3.1",
     "99th percentile of the waits for training batches, computed from the same waits as `wait_p50_ms`"),
    ("wait_variation", "", "variation of the waits", "R-000-5.2",
     "standard deviation of the waits for training batches, divided by their mean, computed from the same waits as "
     "`wait_p50_ms`"),
    ("first_batch_ms", "ms", "time to the first batch", "R-000-3.1",
     "time from `iter(loader)` to the first batch of a training loader, including the start of workers; median over "
     "all passes in the timed epochs"),
    ("waiting_percent", "%", "share of time waiting", "R-004",
     "time that training and validation wait for batches, in percent of the time of the timed epochs; the first batch "
     "of each pass counts, too"),
    ("gpu_percent", "%", "GPU utilisation", "R-000-5.2",
     "mean utilisation of the visible GPUs, which NVML reports at the end of each timed epoch"),
    ("gpu_memory_mib", "MiB", "GPU memory", "R-000-3.1",
     "largest memory that PyTorch reserved on all visible GPUs together"),
    ("memory_mib", "MiB", "memory", "R-000-3.1",
     "largest memory of the training process with its workers, read at the last batch of each pass in the first "
     "epoch, as proportional set size (PSS: shared pages count once); if the system does not report PSS, `memory_kind` "
     "in JSON names the kind of memory that was read"),
    ("lost_workers", "loaders", "loaders that lost workers", "R-000-5.2",
     "loaders with a worker that died and was replaced, or that could not start, counted in all rounds; before the "
     "migration, no worker is replaced, because the death of a worker ends the training"),
))  # fmt: skip


def metrics_of_timed_rounds(
    full_trainings_s: float, timings: Sequence[tuple[EntryPointTiming, EntryPointTiming]]
) -> dict[str, float | None]:
    """Return the metrics of one version as a dictionary: name of a metric → value.

    The value is None if the metric was not measured.

    Args:
        full_trainings_s: seconds that the full trainings of all entry points would take in total, computed from the
            timings. An entry point is a training function or script.
        timings: pairs of timings, one pair for each round and each entry point that the round timed. The first timing
            of a pair is of the version whose metrics are returned. The second timing is of the migrated version in the
            same round, because only the migrated version also runs with zero-cost loading (every loader repeats one
            batch from memory). For the metrics of the migrated version, both timings are the same object.
    """
    found: dict[str, float | None] = {one.name: None for one in METRICS}
    found["training_s"] = full_trainings_s
    found["memory_mib"] = _largest_mib(visit.memory_bytes for visit, _ in timings)
    if any(visit.memory_bytes is not None or visit.lost_workers for visit, _ in timings):  # there were loaders
        found["lost_workers"] = float(sum(visit.lost_workers for visit, _ in timings))
    timed = [(visit, after) for visit, after in timings if visit.epochs_s]
    if not timed:
        return found
    epochs_s = sum(statistics.median(visit.epochs_s) for visit, _ in timed)
    waits = [wait for visit, _ in timed for wait in visit.waits_s]
    busy = [percent for visit, _ in timed for percent in visit.gpu_percent]
    fed = [(visit, after) for visit, after in timed if after.cached_s]
    if fed:
        cached_s = sum(statistics.median(after.cached_s) for _, after in fed)
        found["goodput_percent"] = 100 * cached_s / sum(statistics.median(visit.epochs_s) for visit, _ in fed)
    return found | {
        "samples_per_s": sum(visit.samples for visit, _ in timed) / epochs_s,
        "batches_per_s": sum(visit.batches for visit, _ in timed) / epochs_s,
        "epoch_s": statistics.median(seconds for visit, _ in timed for seconds in visit.epochs_s),
        **{f"wait_p{share}_ms": _percentile_ms(waits, share) for share in (50, 95, 99)},
        "wait_variation": float(np.std(waits) / np.mean(waits)) if any(waits) else None,
        "first_batch_ms": _percentile_ms([wait for visit, _ in timed for wait in visit.first_waits_s], 50),
        "waiting_percent": 100 * sum(visit.waited_s for visit, _ in timed) / sum(sum(v.epochs_s) for v, _ in timed),
        "gpu_percent": statistics.fmean(busy) if busy else None,
        "gpu_memory_mib": _largest_mib(visit.gpu_bytes for visit, _ in timed),
        "lost_workers": float(sum(visit.lost_workers for visit, _ in timings)),
    }


def judge_targets(metrics: Mapping[str, float | None], gpu_description: str, simulated: bool) -> list[TargetVerdict]:
    """Judge whether the migrated version meets the targets. The verdict names the reason if a value was not measured.

    Args:
        metrics: dictionary, name of a metric → value for the migrated version.
        gpu_description: description of the visible GPUs, or "no GPU" with the reason.
        simulated: whether device steps were simulated. If so, the GPU utilisation has no meaning, and is not judged.
    """
    percent, lost = metrics.get("gpu_percent"), metrics.get("lost_workers")
    if percent is None:
        why = (
            gpu_description
            if gpu_description.startswith("no GPU")
            else f"the GPU reports no utilisation ({gpu_description})"
        )
    elif simulated:
        percent, why = None, "the steps of the device were simulated: run verify without --simulate-step-ms"
    else:
        why = f"{percent:.0f} % on average, read once at the end of each timed epoch"
    all_whole = "no loaders were timed" if lost is None else f"{lost:.0f} loaders lost workers in the timed rounds"
    judged = [
        (f"GPU utilisation above {_GPU_PERCENT:.0f} %", percent, (percent or 0) > _GPU_PERCENT, why),
        ("no lost workers", lost, not lost, all_whole),
    ]
    return [
        TargetVerdict("R-000-5.2", target, NOT_MEASURABLE if value is None else MET if is_met else NOT_MET, value, why)
        for target, value, is_met, why in judged
    ]


def _percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    return 1e3 * float(np.percentile(seconds, share)) if seconds else None


def _largest_mib(values: Iterable[int | None]) -> float | None:
    """Convert the largest element of ``values`` from bytes to MiB; return None if all elements are None."""
    most = max((value for value in values if value is not None), default=None)
    return None if most is None else most / MIB
