"""Judge the measured values against their targets: batches per second, GPU utilisation, augmentation, worker processes.

The verdict on each target is "met", "not met" or "not measurable here".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chirp_migrate.console.text import pluralize
from chirp_migrate.verify.measures.metric_data import VersionMeasures

MET, NOT_MET, NOT_MEASURABLE = "met", "not met", "not measurable here"

BATCHES_PER_S, BATCH = 10.0, 32
"""Number of batches per second that loading must exceed, and the batch size for this target."""

GPU_PERCENT = 90.0
"""GPU utilisation in percent that the training must exceed; another requirement has a target of 80 %."""

AUGMENTATION_PERCENT, AUGMENTATION_WARNING = 20.0, 30.0
"""Percent of the time between two batches that augmentation may take, and percent above which ``verify`` warns."""

_GPU = ((80.0, "R-000-5.2"), (GPU_PERCENT, "R-004"))


@dataclass(frozen=True)
class TargetVerdict:
    """The verdict on one target for the migrated version.

    Attributes:
        requirement: number of the requirement that defines the target, such as ``R-004``.
        target: description of the target.
        verdict: one of :data:`MET`, :data:`NOT_MET`, :data:`NOT_MEASURABLE`.
        value: measured value, in the unit of the target; None if the value was not measured.
        why: description of the value, or the reason why it was not measured.
        warning: whether ``verify`` prints a warning about the value.
    """

    requirement: str
    target: str
    verdict: str
    value: float | None
    why: str
    warning: bool = False


def judge_targets(
    after: VersionMeasures, metrics: Mapping[str, float | None], batch_size: int, simulated: bool
) -> list[TargetVerdict]:
    """Judge every target from the measurements of the migrated version.

    Args:
        after: measurements of the migrated version.
        metrics: dictionary, name of a metric → value (see
            :func:`chirp_migrate.verify.measures.figures.metrics_of_measured_run`).
        batch_size: samples per batch of the training.
        simulated: whether device steps were simulated, so that GPU targets are not measurable.
    """
    return [
        _judge_throughput(after, batch_size),
        *(_judge_gpu(after, metrics, wanted, requirement, simulated) for wanted, requirement in _GPU),
        _judge_augmentation(after, metrics, simulated),
        _judge_workers(after),
    ]


def _not_measurable(requirement: str, target: str, why: str) -> TargetVerdict:
    return TargetVerdict(requirement, target, NOT_MEASURABLE, None, why)


def _judge_throughput(after: VersionMeasures, batch_size: int) -> TargetVerdict:
    target = f"more than {BATCHES_PER_S:.0f} batches/s at batch size {BATCH}, loading without training"
    if batch_size != BATCH:
        return _not_measurable("R-004", target, f"the batch size is {batch_size}: verify with --batch-size {BATCH}")
    rate = next((rate for rate in after.rates if rate.loader == "factory"), None)
    if rate is None or rate.samples_per_second is None:
        why = (
            "`verify` found no dataset that it can read outside of the training"
            if rate is None
            else rate.problem or "not timed"
        )
        return _not_measurable("R-004", target, why)
    value = rate.samples_per_second / BATCH
    why = f"{value:,.0f} batches/s from {rate.dataset}, the dataset that training waited for longest"
    return TargetVerdict("R-004", target, MET if value > BATCHES_PER_S else NOT_MET, value, why)


def _judge_gpu(
    after: VersionMeasures, figures: Mapping[str, float | None], wanted: float, requirement: str, simulated: bool
) -> TargetVerdict:
    target = f"GPU utilisation above {wanted:.0f} %"
    value = figures.get("gpu_percent")
    if value is None:
        why = after.gpu if after.gpu.startswith("no GPU") else f"the GPU reports no utilisation ({after.gpu})"
        return _not_measurable(requirement, target, why)
    if simulated:
        return _not_measurable(
            requirement, target, "the device's steps were simulated: verify without --simulate-step-ms"
        )
    why = f"{value:.0f} % on average while training ran"
    return TargetVerdict(requirement, target, MET if value > wanted else NOT_MET, value, why)


def _judge_augmentation(after: VersionMeasures, figures: Mapping[str, float | None], simulated: bool) -> TargetVerdict:
    target = f"augmentation overhead below {AUGMENTATION_PERCENT:.0f} % of the time of a batch"
    value, added = figures.get("augmentation_percent"), figures.get("augmentation_ms")
    if value is None or added is None:
        reasons = [cost.reason for cost in after.augmentation if cost.reason is not None]
        return _not_measurable("R-004", target, reasons[0] if reasons else "the training used no augmented dataset")
    period = 100 * added / value if value > 0 else 0.0
    with_step = " with simulated steps" if simulated else ""
    why = f"{value:.0f} %: augmentation takes {added:.2f} of the {period:.1f} ms between two batches{with_step}"
    loading = figures.get("augmentation_of_loading_percent")
    if loading is not None:
        why += f"; {loading:.0f} % of loading alone"
    verdict = MET if value < AUGMENTATION_PERCENT else NOT_MET
    return TargetVerdict("R-004", target, verdict, value, why, value > AUGMENTATION_WARNING)


def _judge_workers(after: VersionMeasures) -> TargetVerdict:
    requirement, target = "R-000-5.1", "every sample arrives once and no worker is lost, at any number of workers"
    tried = [trial for trial in after.workers if trial.tried]
    lost = sum(entry.lost_workers for entry in after.entries.values())
    problems = [trial for trial in tried if trial.problem is not None]
    if lost:
        why = f"{lost} loaders of the training lost their workers"
        return TargetVerdict(requirement, target, NOT_MET, float(lost), why)
    if problems:
        first = problems[0]
        why = f"{first.dataset} with {first.workers} workers: {first.problem}"
        return TargetVerdict(requirement, target, NOT_MET, float(len(problems)), why)
    if not tried:
        return _not_measurable(requirement, target, "no dataset was read in worker processes")
    counts = ", ".join(str(count) for count in sorted({trial.workers for trial in tried}))
    datasets = len({trial.dataset for trial in tried})
    why = f"checked {pluralize(datasets, 'dataset')} with {counts} workers ({tried[0].start_method})"
    if after.unread:
        name, reason = next(iter(after.unread.items()))
        return _not_measurable(
            requirement, target, f"{name} could not be read by index ({reason}); without problems: {why}"
        )
    if len(tried) < len(after.workers):
        some = f"{len(tried)} of {len(after.workers)} checks fitted into the time, without problems"
        return _not_measurable(requirement, target, f"{some}: {why}")
    return TargetVerdict(requirement, target, MET, 0.0, why)
