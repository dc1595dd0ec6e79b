"""What ``tune`` found, as text of 80 columns. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from textwrap import shorten

from chirp_migrate.console.paint import count, wrapped
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.tune.candidate import Measured
from chirp_migrate.tune.document import Beside, LoaderReport, TuneReport
from chirp_migrate.tune.plateau import TOLERANCE, Place, mean_rate
from chirp_migrate.tune.request import Training

__all__ = ["to_text"]


def to_text(report: TuneReport, *, quiet: bool = False) -> str:
    """The report; with ``quiet`` the recommendations alone."""
    lines: list[str] = []
    for found in report.loaders:
        if not quiet:
            lines += [*_loader(found), ""]
        lines += _advice(found)
        lines.append("")
    if quiet:
        return "\n".join(lines).strip() + "\n"
    if report.training is not None:
        lines += _training(report.training)
    for note in report.notes:
        lines += wrapped(_sentence(note), "  ", "")
    lines += wrapped(f"Measured on: {report.described}.", "  ", "")
    return "\n".join(lines) + "\n"


def _loader(found: LoaderReport) -> Iterator[str]:
    loader = "this package's loader" if found.migrated else "PyTorch's loader"
    size = "batches as sampled" if found.batch_size is None else f"batch size {found.batch_size}"
    head = f"{found.name}: {found.samples} samples, {found.role}, {size}, {loader}"
    yield from wrapped(head, "  ", "")
    yield ""
    yield f"  {'':22}{'batches/s':>10}{'samples/s':>10}  {'95 % interval':<14}{'of best':>8}  {'start':>6}"
    for measured, beside in zip(found.measured, found.standings, strict=True):
        yield _row(measured, beside, found)
    yield ""
    if found.picked is not None:
        yield from wrapped(_picked(found), "  ", "")
    for line in (_reading(found), _augmentation(found), _waited(found), _sizes(found), _disturbed(found), _kept(found)):
        if line is not None:
            yield from wrapped(line, "  ", "")


def _row(measured: Measured, beside: Beside, found: LoaderReport) -> str:
    head = f"{'*' if measured.candidate == found.picked else ' '} {beside.configuration:22}"
    now = " now" if measured.candidate == found.now else ""
    rate = beside.samples_per_s
    if rate is None:
        return f"{head} {shorten(f'failed: {measured.error}', 50, placeholder='…')}{now}"
    interval = "" if beside.interval is None else "[{:.0f}, {:.0f}]".format(*beside.interval)
    ratio = "" if beside.beside_best is None else f"{beside.beside_best:.2f}{'' if beside.settled else '?'}"
    of_best = "best" if beside.place is Place.BEST else ratio
    start = f"{statistics.median(measured.first_batch_s):.2f} s"
    batches = rate if beside.batches_per_s is None else beside.batches_per_s
    return f"{head}{batches:>10.1f}{rate:>10.0f}  {interval:<14}{of_best:>8}  {start:>6}{now}"


def _picked(found: LoaderReport) -> str:
    rounds = count(found.rounds, "round")
    sure = "" if found.settled else "; where the share of the best has a ?, more time (--seconds) would settle it"
    best = next(one.configuration for one in found.standings if one.place is Place.BEST)
    if best == str(found.picked):
        return f"Picked: {found.picked}, the fastest, by {rounds}{sure}."
    return (
        f"Picked: {found.picked}, the smallest that is within {TOLERANCE:.0%} of the best ({best}), by {rounds}{sure}."
    )


def _reading(found: LoaderReport) -> str | None:
    if found.cpu_share is None:
        return None
    return (
        f"Loading in the process computes {found.cpu_share:.0%} of its time and waits {1 - found.cpu_share:.0%} "
        "(files, or other processes on the CPU)."
    )


def _augmentation(found: LoaderReport) -> str | None:
    share = found.augmentation_share
    if share is None:
        return f"Augmentation was not measured: {found.not_augmented}."
    augmented, plain = statistics.median(found.with_s), statistics.median(found.without_s)
    return (
        f"Augmentation takes {share:.0%} of loading: {1e3 * augmented:.1f} ms a batch with it, {1e3 * plain:.1f} ms "
        f"without ({count(len(found.with_s), 'round')}, medians)."
    )


def _waited(found: LoaderReport) -> str | None:
    if found.waited_share is None:
        return None
    return (
        f"The training waits {found.waited_share:.0%} of its time for these batches (start-up left out). The "
        "rates above are loading alone: a training step that uses the CPUs leaves workers less of them."
    )


def _sizes(found: LoaderReport) -> str | None:
    if not found.batch_sizes:
        return None
    working = [one for one in found.batch_sizes if one.rates and one.error is None]
    rates = [f"{one.candidate.batch_size}: {mean_rate(one.rates).value:.0f}" for one in working]
    return f"Samples/s by batch size: {', '.join(rates)}."


def _disturbed(found: LoaderReport) -> str | None:
    if found.others is None or found.others < BUSY_ABOVE:
        return None
    return f"Other processes used {found.others:.0%} of the CPUs meanwhile: measure again when the machine is quiet."


def _kept(found: LoaderReport) -> str | None:
    if found.saved is not None:
        return (
            f"Kept in {found.saved}: a loader made with profile={found.saved!r} (or tune=True, where that is the usual "
            "file) is loaded so."
        )
    return None if found.not_saved is None else f"Not kept in a profile: {found.not_saved}."


def _advice(found: LoaderReport) -> Iterator[str]:
    yield f"Recommendations for {found.name}:"
    for one in found.recommendations:
        yield from wrapped(str(one), "    ", "  ! " if one.warning else "  - ")
    if not found.recommendations:
        yield "  none"


def _training(training: Training) -> Iterator[str]:
    busy = f"busy {training.gpu_percent:.0f} % of it" if training.gpu_percent is not None else training.gpu
    yield from wrapped(f"The training was run once, in {training.seconds:.1f} s; GPU: {busy}.", "  ", "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
