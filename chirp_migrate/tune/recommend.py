"""What to change: each recommendation names the setting, what it is, what it should be, and why. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.training.watch.augmentation import share_of_loading
from chirp_migrate.tune.document import Beside, Findings, LoaderReport, Place, Recommendation, Training, TuneReport
from chirp_migrate.tune.plateau import Standing, pick, settled, standings
from chirp_migrate.verify.measures.targets import (
    AUGMENTATION_PERCENT,
    AUGMENTATION_WARNING,
    BATCH,
    BATCHES_PER_S,
    GPU_PERCENT,
)

__all__ = ["recommendations", "tune_report"]

_WAITS_LITTLE = 0.05
_WAITING = 0.5
_START_SHARE = 0.05
_WORTH_IT = 1.05


def tune_report(findings: Findings, machine: dict[str, Any], described: str, tool: str) -> TuneReport:
    """Conclude; recommendations that concern the training as a whole stand with the first loader."""
    for number, found in enumerate(findings.loaders):
        placed = standings(found.measured)
        chosen = pick(placed)
        found.picked = None if chosen is None else chosen.candidate
        found.settled = settled(placed)
        found.standings = [_beside(one, found.batch_size) for one in placed]
        found.augmentation_share = share_of_loading(found.with_s, found.without_s)
        found.recommendations = recommendations(found, findings.training if number == 0 else None)
    return TuneReport(
        tool=tool,
        loaders=findings.loaders,
        training=findings.training,
        notes=findings.notes,
        machine=machine,
        described=described,
    )


def recommendations(found: LoaderReport, training: Training | None) -> list[Recommendation]:
    """What to change for one loader, and for the training where one is given; nothing where all ways failed."""
    placed = standings(found.measured)
    chosen = pick(placed)
    if chosen is None or chosen.rate is None:
        return []
    advice = [*_workers(found, placed, chosen), *_failures(found)]
    advice += [*_batch_sizes(found), *_augmentation(found), *_limits(found, chosen), *_gpu(training)]
    return advice


def _workers(found: LoaderReport, placed: list[Standing], chosen: Standing) -> list[Recommendation]:
    way, rate = chosen.candidate, chosen.rate
    assert rate is not None
    now = next((one for one in placed if one.candidate == found.now), None)
    if found.waited_share is not None and found.waited_share < _WAITS_LITTLE:
        why = f"the training waits {found.waited_share:.1%} of its time for batches: loading does not hold it up"
        return [Recommendation(found.setting.get("num_workers", "num_workers"), "leave it as it is", why)]
    if now is not None and now.rate is not None:
        gain = rate.value / now.rate.value
        if now.candidate == way or (1 / _WORTH_IT < gain < _WORTH_IT and now.candidate.size <= way.size):
            return [Recommendation(_name(found, "num_workers"), "leave it as it is", f"{way} is what you have")]
        why = f"{rate.value:.0f} samples/s against {now.rate.value:.0f} with {now.candidate}"
    else:
        alone = next(one.rate for one in placed if one.candidate.alone)
        why = f"{rate.value:.0f} samples/s"
        if alone is not None and not way.alone:
            why += f" against {alone.value:.0f} in the process"
    if way.alone:
        others = [one.rate.value for one in placed if one.candidate.num_workers and one.rate is not None]
        if others and now is None:
            why += f"; workers reach {max(others):.0f} at most"
    advice = [Recommendation(_name(found, "num_workers"), str(way.num_workers), why)]
    if way.prefetch_threads:
        advice.append(Recommendation("prefetch_threads", str(way.prefetch_threads), why))
    if way.num_workers:
        if found.now is None or found.now.prefetch_factor != way.prefetch_factor:
            same = "the smallest that is level with the best" if chosen.place is Place.LEVEL else "the fastest measured"
            advice.append(Recommendation(_name(found, "prefetch_factor"), str(way.prefetch_factor), same))
        advice += _persistent(found, chosen)
    return advice


def _persistent(found: LoaderReport, chosen: Standing) -> list[Recommendation]:
    """Keep the workers where starting them takes a noticeable part of an epoch."""
    assert chosen.rate is not None
    start_s = statistics.median(chosen.measured.first_batch_s)
    epoch_s = found.samples / chosen.rate.value
    if start_s < _START_SHARE * epoch_s:
        return []
    why = f"workers take {start_s:.2f} s to give a first batch, and the rest of an epoch about {epoch_s:.1f} s"
    return [Recommendation("persistent_workers", "True", why)]


def _failures(found: LoaderReport) -> list[Recommendation]:
    failed = [one for one in found.measured if one.error is not None]
    return [
        Recommendation("num_workers", f"not {one.candidate.num_workers}", f"it failed: {one.error}", warning=True)
        for one in failed[:1]
    ]


def _batch_sizes(found: LoaderReport) -> list[Recommendation]:
    """Another size, where the training's own is clearly below it."""
    placed = standings(found.batch_sizes)
    own = next((one for one in placed if one.candidate.batch_size == found.batch_size), None)
    best = next((one for one in placed if one.place is Place.BEST), None)
    if own is None or best is None or own.place is not Place.BELOW or not own.settled:
        return []
    assert own.rate is not None and best.rate is not None
    why = (
        f"it loads {best.rate.value:.0f} samples/s against {own.rate.value:.0f} at {found.batch_size}; a batch size "
        "changes what training learns, so that is yours to decide"
    )
    return [Recommendation(_name(found, "batch_size"), f"{best.candidate.batch_size} would load faster", why)]


def _augmentation(found: LoaderReport) -> list[Recommendation]:
    share = share_of_loading(found.with_s, found.without_s)
    if share is None or 100 * share < AUGMENTATION_PERCENT:
        return []
    what = "make it cheaper: fewer or simpler transforms, smaller p, or this package's batched ones"
    high = 100 * share > AUGMENTATION_WARNING
    bound = f"above {AUGMENTATION_WARNING:.0f}%" if high else f"the target is below {AUGMENTATION_PERCENT:.0f}%"
    return [Recommendation("the transform of the dataset", what, f"{share:.0%} of loading, {bound}", warning=high)]


def _limits(found: LoaderReport, chosen: Standing) -> list[Recommendation]:
    assert chosen.rate is not None
    advice = []
    # Beside busy processes waiting is for a CPU, and says nothing of files.
    quiet = found.others is None or found.others < BUSY_ABOVE
    if found.cpu_share is not None and found.cpu_share < _WAITING and quiet:
        waits = 1 - found.cpu_share
        what = "more than there are CPUs may pay; or bring the files nearer (local disk, one memory-mapped array)"
        why = f"loading waits {waits:.0%} of its time instead of computing"
        advice.append(Recommendation(_name(found, "num_workers"), what, why))
    per_s = chosen.rate.value / (found.batch_size or 1)
    if found.role == "training" and found.batch_size == BATCH and per_s < BATCHES_PER_S:
        what = "make a sample cheaper to read: store it decoded and at its final size"
        why = f"{per_s:.1f} batches/s at best, the target is above {BATCHES_PER_S:.0f}"
        advice.append(Recommendation("__getitem__ of the dataset", what, why, warning=True))
    return advice


def _gpu(training: Training | None) -> list[Recommendation]:
    if training is None or training.gpu_percent is None or training.gpu_percent >= GPU_PERCENT:
        return []
    why = f"the GPU was busy {training.gpu_percent:.0f} % of the training, the target is above {GPU_PERCENT:.0f} %"
    return [Recommendation("pin_memory", "True, with .to(device, non_blocking=True) in the loop", why, warning=True)]


def _name(found: LoaderReport, argument: str) -> str:
    return found.setting.get(argument, argument)


def _beside(one: Standing, batch_size: int | None) -> Beside:
    rate, ratio = one.rate, one.ratio
    return Beside(
        configuration=str(one.candidate),
        place=one.place,
        settled=one.settled,
        samples_per_s=None if rate is None else rate.value,
        interval=None if rate is None or rate.rounds < 2 else (rate.low, rate.high),
        batches_per_s=None if rate is None or not batch_size else rate.value / batch_size,
        beside_best=None if ratio is None else ratio.value,
        beside_best_interval=None if ratio is None else (ratio.low, ratio.high),
    )
