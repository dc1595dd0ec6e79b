"""Recommend loader settings from the measurements. A recommendation has a setting, a value and a reason."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from chirp_migrate.console.text import format_percent
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.tune.plateau import compare_with_best, is_pick_conclusive, pick_smallest_best
from chirp_migrate.tune.tune_report import (
    CandidateMeasurement,
    LoaderReport,
    Recommendation,
    SettingsOutcome,
    TrainingRun,
    mean_rate,
    mean_rates,
)
from chirpid_patch.speed_comparison import costly_is_faster
from chirpid_patch.thresholds import NOTICEABLE, WAITING

_BATCHES_PER_S, _BATCH = 10.0, 32
"""Target: loading must be faster than this number of batches per second. The target applies only to this batch size."""

_GPU_PERCENT = 90.0
"""Target: the GPU utilisation of the training must be above this value, in percent."""

_AUGMENTATION_PERCENT, _AUGMENTATION_WARNING = 20.0, 30.0
"""If augmentation takes at least the first value, in percent of the loading time, ``tune`` recommends a change.

Above the second value, the recommendation is a warning.
"""


def add_recommendations(loader: LoaderReport, training: TrainingRun | None) -> None:
    """Add the picked settings, the comparisons and the recommendations to the report on a loader.

    If all configurations failed, the function adds no recommendations.

    Args:
        loader: the report on the loader, which already contains the measurements.
        training: the training that ran. If its GPU utilisation is too low, the function adds a recommendation on GPU
            use. The value None means that the function adds no such recommendation.
    """
    chosen = pick_smallest_best(loader.measured)
    loader.picked = None if chosen is None else chosen.candidate
    loader.conclusive = is_pick_conclusive(loader.measured)
    loader.comparisons = compare_with_best(loader.measured)
    loader.augmentation_share = augmentation_share_of_loading(loader.with_s, loader.without_s)
    if chosen is not None:
        advice = [
            *_recommend_workers(loader, chosen),
            *_describe_failures(loader),
            *_recommend_batch_size(loader),
            *_recommend_for_augmentation(loader),
        ]
        loader.recommendations = [*advice, *_recommend_at_limits(loader, chosen), *_recommend_for_gpu(training)]


def _recommend_workers(loader: LoaderReport, chosen: CandidateMeasurement) -> list[Recommendation]:
    way = chosen.candidate
    rates = {way: rate.value for way, rate in mean_rates(loader.measured).items()}
    if loader.waited_share is not None and loader.waited_share < NOTICEABLE:
        why = (
            f"the training waits only {format_percent(loader.waited_share, 1)} of its time for batches, so loading "
            "does not slow it down"
        )
        return [Recommendation(_setting_name(loader, "num_workers"), "keep it", why)]
    if loader.now is not None and loader.now in rates:
        smaller = loader.now.size <= way.size
        if loader.now == way or (smaller and not costly_is_faster(rates[loader.now], rates[way])):
            return [Recommendation(_setting_name(loader, "num_workers"), "keep it", "no setting is clearly faster")]
        rate = f"{rates[way]:.0f} samples/s" + (f" with {way}" if way.prefetch_threads else "")
        now = str(loader.now) if loader.now.is_in_main_process else f"with {loader.now}"
        why = f"{rate} against {rates[loader.now]:.0f} {now}"
    else:
        why = f"{rates[way]:.0f} samples/s"
        alone = next((candidate for candidate in rates if candidate.is_in_main_process), None)
        if alone is not None and not way.is_in_main_process:
            why += f" against {rates[alone]:.0f} in the main process"
        with_workers = [rates[candidate] for candidate in rates if candidate.num_workers]
        if with_workers and way.is_in_main_process and loader.now is None:
            why += f", and at most {max(with_workers):.0f} samples/s with workers"
    advice = [Recommendation(_setting_name(loader, "num_workers"), str(way.num_workers), why)]
    if way.prefetch_threads:
        advice.append(Recommendation("prefetch_threads", str(way.prefetch_threads), why))
    if way.num_workers:
        if loader.now is None or loader.now.prefetch_factor != way.prefetch_factor:
            level = loader.comparisons[loader.measured.index(chosen)].outcome is SettingsOutcome.TIED
            same = (
                "the smallest value that is about as fast as the best"
                if level
                else "the value with the fastest measured loading"
            )
            advice.append(Recommendation(_setting_name(loader, "prefetch_factor"), str(way.prefetch_factor), same))
        advice += _recommend_persistent_workers(loader, chosen)
    return advice


def _recommend_persistent_workers(loader: LoaderReport, chosen: CandidateMeasurement) -> list[Recommendation]:
    """Recommend persistent workers if the time until the first batch is long.

    The limit is 5 % of the time that the started workers need to load all samples once.
    """
    start_s = statistics.median(chosen.first_batch_s)
    epoch_s = loader.samples / mean_rate(chosen.rates).value
    if start_s < NOTICEABLE * epoch_s:
        return []
    why = (
        "without persistent workers, each epoch starts new workers, and its first batch arrives after "
        f"{start_s:.2f} s; the rest of the epoch takes about {epoch_s:.1f} s"
    )
    return [Recommendation("persistent_workers", "True", why)]


def _describe_failures(loader: LoaderReport) -> list[Recommendation]:
    failed = next((measured for measured in loader.measured if measured.error is not None), None)
    if failed is None:
        return []
    why = f"the measurement failed: {failed.error}"
    return [Recommendation("num_workers", f"do not use {failed.candidate.num_workers}", why, warning=True)]


def _recommend_batch_size(loader: LoaderReport) -> list[Recommendation]:
    """Recommend the batch size with the fastest loading, if the batch size of the training is more than 5 % slower.

    The 95 % interval of the ratio of both rates must show that the difference is so large.
    """
    placed = {
        measured.candidate.batch_size: comparison
        for measured, comparison in zip(loader.batch_sizes, compare_with_best(loader.batch_sizes), strict=True)
    }
    own = placed.get(loader.batch_size)
    best = next((size for size, comparison in placed.items() if comparison.outcome is SettingsOutcome.BEST), None)
    if own is None or best is None or own.outcome is not SettingsOutcome.BELOW or not own.conclusive:
        return []
    why = (
        f"{placed[best].samples_per_s:.0f} samples/s against {own.samples_per_s:.0f} with batch size "
        f"{loader.batch_size}; the batch size changes what training learns, so the choice is yours"
    )
    return [Recommendation(_setting_name(loader, "batch_size"), f"{best} would load faster", why)]


def augmentation_share_of_loading(augmented_s: Sequence[float], unaugmented_s: Sequence[float]) -> float | None:
    """Return the share of the loading time that augmentation takes, 0 to 1; None if this share was not measured.

    The function uses the medians of the times.
    """
    if not augmented_s:
        return None
    augmented, plain = statistics.median(augmented_s), statistics.median(unaugmented_s)
    return (augmented - plain) / augmented


def _recommend_for_augmentation(loader: LoaderReport) -> list[Recommendation]:
    share = loader.augmentation_share
    if share is None or 100 * share < _AUGMENTATION_PERCENT:
        return []
    what = "use fewer or simpler transforms, a smaller probability p, or the batched transforms of chirpid_patch"
    high = 100 * share > _AUGMENTATION_WARNING
    target = f"the target is below {_AUGMENTATION_PERCENT:.0f} %"
    bound = f"{target}, and tune warns above {_AUGMENTATION_WARNING:.0f} %" if high else target
    return [
        Recommendation(
            "the transform of the dataset",
            what,
            f"augmentation takes {format_percent(share)} of the loading time; {bound}",
            warning=high,
        )
    ]


def _recommend_at_limits(loader: LoaderReport, chosen: CandidateMeasurement) -> list[Recommendation]:
    advice = []
    # If other processes are busy, loading may wait for a CPU, and not for files.
    quiet = loader.others is None or loader.others < BUSY_ABOVE
    if loader.cpu_share is not None and loader.cpu_share < WAITING and quiet:
        waits = 1 - loader.cpu_share
        what = "try more workers than CPUs, or move the files to faster storage (local disk, one memory-mapped array)"
        why = f"during {format_percent(waits)} of its time, loading waits (probably for files) and does not compute"
        advice.append(Recommendation(_setting_name(loader, "num_workers"), what, why))
    per_s = mean_rate(chosen.rates).value / (loader.batch_size or 1)
    if loader.role == "training" and loader.batch_size == _BATCH and per_s < _BATCHES_PER_S:
        what = "make a sample cheaper to read: store it decoded and at its final size"
        why = f"{per_s:.1f} batches/s at best; the target is above {_BATCHES_PER_S:.0f}"
        advice.append(Recommendation("__getitem__ of the dataset", what, why, warning=True))
    return advice


def _recommend_for_gpu(training: TrainingRun | None) -> list[Recommendation]:
    if training is None or training.gpu_percent is None or training.gpu_percent >= _GPU_PERCENT:
        return []
    why = f"the GPU was busy {training.gpu_percent:.0f} % of the training; the target is above {_GPU_PERCENT:.0f} %"
    return [
        Recommendation(
            "pin_memory", "True, with .to(device, non_blocking=True) in the training loop", why, warning=True
        )
    ]


def _setting_name(loader: LoaderReport, argument: str) -> str:
    return loader.setting.get(argument, argument)
