"""The result of a run, as text of 80 columns and as JSON. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import shorten
from typing import Any

from chirp_migrate.console.paint import count, wrapped
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.training.watch.augmentation import share_of_loading
from chirp_migrate.tune.plateau import TOLERANCE, Place, Rate, Standing, pick, settled, standings
from chirp_migrate.tune.recommend import Recommendation, recommendations
from chirp_migrate.tune.request import Findings, LoaderFindings, Training

__all__ = ["advice_for", "to_json", "to_text"]

_SCHEMA = 1
_BETWEEN = {Place.BEST: "best", Place.LEVEL: "level", Place.BELOW: "below", Place.FAILED: "failed"}


def advice_for(findings: Findings) -> list[list[Recommendation]]:
    """Recommendations for each loader; what concerns the training as a whole stands with the first."""
    return [
        recommendations(found, findings.training if number == 0 else None)
        for number, found in enumerate(findings.loaders)
    ]


def to_text(findings: Findings, machine: str, *, quiet: bool = False) -> str:
    """The report; with ``quiet`` the recommendations alone."""
    lines: list[str] = []
    for found, advice in zip(findings.loaders, advice_for(findings), strict=True):
        if not quiet:
            lines += [*_loader(found), ""]
        lines += _advice(found, advice)
        lines.append("")
    if quiet:
        return "\n".join(lines).strip() + "\n"
    if findings.training is not None:
        lines += _training(findings.training)
    for note in findings.notes:
        lines += wrapped(_sentence(note), "  ", "")
    lines += wrapped(f"Measured on: {machine}.", "  ", "")
    return "\n".join(lines) + "\n"


def _loader(found: LoaderFindings) -> Iterator[str]:
    loader = "this package's loader" if found.migrated else "PyTorch's loader"
    size = "batches as sampled" if found.batch_size is None else f"batch size {found.batch_size}"
    head = f"{found.name}: {found.samples} samples, {found.role}, {size}, {loader}"
    yield from wrapped(head, "  ", "")
    yield ""
    placed = standings(found.measured)
    chosen = pick(placed)
    yield f"  {'':22}{'batches/s':>10}{'samples/s':>10}  {'95 % interval':<14}{'of best':>8}  {'start':>6}"
    for one in placed:
        yield _row(one, found, one is chosen)
    yield ""
    if chosen is not None and chosen.rate is not None:
        yield from wrapped(_picked(found, placed, chosen), "  ", "")
    for line in (_reading(found), _augmentation(found), _waited(found), _sizes(found), _disturbed(found), _kept(found)):
        if line is not None:
            yield from wrapped(line, "  ", "")


def _row(one: Standing, found: LoaderFindings, chosen: bool) -> str:
    head = f"{'*' if chosen else ' '} {one.candidate!s:22}"
    now = " now" if one.candidate == found.now else ""
    if one.rate is None:
        return f"{head} {shorten(f'failed: {one.measured.error}', 50, placeholder='…')}{now}"
    batches = one.rate.value / found.batch_size if found.batch_size else one.rate.value
    ratio = "" if one.ratio is None else f"{one.ratio.value:.2f}{'' if one.settled else '?'}"
    start = f"{statistics.median(one.measured.first_batch_s):.2f} s"
    beside = "best" if one.place is Place.BEST else ratio
    return f"{head}{batches:>10.1f}{one.rate.value:>10.0f}  {_interval(one.rate):<14}{beside:>8}  {start:>6}{now}"


def _interval(rate: Rate) -> str:
    return "" if rate.low is None or rate.high is None else f"[{rate.low:.0f}, {rate.high:.0f}]"


def _picked(found: LoaderFindings, placed: list[Standing], chosen: Standing) -> str:
    rounds = count(found.rounds, "round")
    sure = "" if settled(placed) else "; where the share of the best has a ?, more time (--seconds) would settle it"
    if chosen.place is Place.BEST:
        return f"Picked: {chosen.candidate}, the fastest, by {rounds}{sure}."
    best = next(one for one in placed if one.place is Place.BEST)
    return (
        f"Picked: {chosen.candidate}, the smallest that is within {TOLERANCE:.0%} of the best ({best.candidate}), by "
        f"{rounds}{sure}."
    )


def _reading(found: LoaderFindings) -> str | None:
    if found.cpu_share is None:
        return None
    return (
        f"Loading in the process computes {found.cpu_share:.0%} of its time and waits {1 - found.cpu_share:.0%} "
        "(files, or other processes on the CPU)."
    )


def _augmentation(found: LoaderFindings) -> str | None:
    share = share_of_loading(found.with_s, found.without_s)
    if share is None:
        return f"Augmentation was not measured: {found.not_augmented}."
    augmented, plain = statistics.median(found.with_s), statistics.median(found.without_s)
    return (
        f"Augmentation takes {share:.0%} of loading: {1e3 * augmented:.1f} ms a batch with it, {1e3 * plain:.1f} ms "
        f"without ({count(len(found.with_s), 'round')}, medians)."
    )


def _waited(found: LoaderFindings) -> str | None:
    if found.waited_share is None:
        return None
    return (
        f"The training waits {found.waited_share:.0%} of its time for these batches (start-up left out). The "
        "rates above are loading alone: a training step that uses the CPUs leaves workers less of them."
    )


def _sizes(found: LoaderFindings) -> str | None:
    if not found.batch_sizes:
        return None
    placed = standings(found.batch_sizes)
    rates = [f"{one.candidate.batch_size}: {one.rate.value:.0f}" for one in placed if one.rate is not None]
    return f"Samples/s by batch size: {', '.join(rates)}."


def _disturbed(found: LoaderFindings) -> str | None:
    if found.others is None or found.others < BUSY_ABOVE:
        return None
    return f"Other processes used {found.others:.0%} of the CPUs meanwhile: measure again when the machine is quiet."


def _kept(found: LoaderFindings) -> str | None:
    if found.saved is not None:
        return (
            f"Kept in {found.saved}: a loader made with profile={found.saved!r} (or tune=True, where that is the usual "
            "file) is loaded so."
        )
    return None if found.not_saved is None else f"Not kept in a profile: {found.not_saved}."


def _advice(found: LoaderFindings, advice: list[Recommendation]) -> Iterator[str]:
    yield f"Recommendations for {found.name}:"
    for one in advice:
        yield from wrapped(str(one), "    ", "  ! " if one.warning else "  - ")
    if not advice:
        yield "  none"


def _training(training: Training) -> Iterator[str]:
    busy = f"busy {training.gpu_percent:.0f} % of it" if training.gpu_percent is not None else training.gpu
    yield from wrapped(f"The training was run once, in {training.seconds:.1f} s; GPU: {busy}.", "  ", "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def to_json(findings: Findings, machine: dict[str, Any], tool: str) -> dict[str, Any]:
    """All raw values, and what is concluded from them."""
    loaders = []
    for found, advice in zip(findings.loaders, advice_for(findings), strict=True):
        placed = standings(found.measured)
        chosen = pick(placed)
        loaders.append(
            {
                **asdict(found),
                "picked": None if chosen is None else asdict(chosen.candidate),
                "settled": settled(placed),
                "standings": [_standing(one, found) for one in placed],
                "augmentation_share": share_of_loading(found.with_s, found.without_s),
                "recommendations": [asdict(one) for one in advice],
            }
        )
    training = None if findings.training is None else asdict(findings.training)
    return {
        "schema": _SCHEMA,
        "tool": tool,
        "loaders": loaders,
        "training": training,
        "notes": findings.notes,
        "machine": machine,
    }


def _standing(one: Standing, found: LoaderFindings) -> dict[str, Any]:
    rate = one.rate
    return {
        "configuration": str(one.candidate),
        "place": _BETWEEN[one.place],
        "settled": one.settled,
        "samples_per_s": None if rate is None else rate.value,
        "interval": None if rate is None or rate.low is None else [rate.low, rate.high],
        "batches_per_s": None if rate is None or not found.batch_size else rate.value / found.batch_size,
        "beside_best": None if one.ratio is None else one.ratio.value,
        "beside_best_interval": None if one.ratio is None else [one.ratio.low, one.ratio.high],
    }
