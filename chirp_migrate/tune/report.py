"""What ``tune`` found, printed for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import count, sentence
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.tune.document import Beside, LoaderReport, Measured, Place, Training, TuneReport
from chirp_migrate.tune.plateau import TOLERANCE, mean_rate

__all__ = ["show"]


def show(report: TuneReport, screen: Screen) -> None:
    """Print the report; with -q the recommendations alone, with -v every round, too."""
    for found in report.loaders:
        screen.line()
        if not screen.quiet:
            _show_loader(found, screen)
            screen.line()
        _show_advice(found, screen)
    if screen.quiet:
        return
    screen.line()
    if report.training is not None:
        screen.text(_training(report.training), hang=2)
    for note in report.notes:
        screen.text(sentence(note), hang=2)
    screen.text(f"Measured on: {report.described}.", hang=2)


def _show_loader(found: LoaderReport, screen: Screen) -> None:
    loader = "this package's loader" if found.migrated else "PyTorch's loader"
    size = "batches as sampled" if found.batch_size is None else f"batch size {found.batch_size}"
    screen.text(f"{found.name}: {found.samples} samples, {found.role}, {size}, {loader}", style="bold", hang=2)
    screen.line()
    measured = list(zip(found.measured, found.standings, strict=True))
    rows = [_row(one, beside, beside.samples_per_s, found) for one, beside in measured if beside.samples_per_s]
    if rows:
        header = ("", "batches/s", "samples/s", "interval", "of best", "start")
        screen.table(header, rows, left=(0, 3, 5), indent=0)
    for one, beside in measured:
        if not beside.samples_per_s:
            now = " (now)" if one.candidate == found.now else ""
            screen.text(f"{beside.configuration}{now}: failed: {one.error}", 2, hang=2)
        elif screen.verbose:
            rates = ", ".join(f"{rate:.0f}" for rate in one.rates)
            screen.text(f"{beside.configuration}, samples/s of each round: {rates}", 2, "dim", hang=2)
    screen.line()
    if found.picked is not None:
        screen.text(_picked(found), hang=2)
    for line in _facts(found):
        screen.text(line, hang=2)


def _row(measured: Measured, beside: Beside, rate: float, found: LoaderReport) -> list[str]:
    ratio = "" if beside.beside_best is None else f"{beside.beside_best:.2f}{'' if beside.settled else '?'}"
    now = " now" if measured.candidate == found.now else ""
    return [
        f"{'*' if measured.candidate == found.picked else '-'} {beside.configuration}",
        f"{rate if beside.batches_per_s is None else beside.batches_per_s:.1f}",
        f"{rate:.0f}",
        "" if beside.interval is None else "[{:.0f}, {:.0f}]".format(*beside.interval),
        "best" if beside.place is Place.BEST else ratio,
        f"{statistics.median(measured.first_batch_s):.2f} s{now}",
    ]


def _picked(found: LoaderReport) -> str:
    rounds = count(found.rounds, "round")
    sure = "" if found.settled else "; where the share of the best has a ?, more time (--time-budget) would settle it"
    best = next(one.configuration for one in found.standings if one.place is Place.BEST)
    if best == str(found.picked):
        return f"Picked: {found.picked}, the fastest, by {rounds}{sure}."
    return (
        f"Picked: {found.picked}, the smallest that is within {TOLERANCE:.0%} of the best ({best}), by {rounds}{sure}."
    )


def _facts(found: LoaderReport) -> Iterator[str]:
    """What else was found of a loader, a sentence each."""
    if found.cpu_share is not None:
        yield (
            f"Loading in the process computes {found.cpu_share:.0%} of its time and waits {1 - found.cpu_share:.0%} "
            "(files, or other processes on the CPU)."
        )
    if found.augmentation_share is None:
        yield f"Augmentation was not measured: {found.not_augmented}."
    else:
        augmented, plain = statistics.median(found.with_s), statistics.median(found.without_s)
        yield (
            f"Augmentation takes {found.augmentation_share:.0%} of loading: {1e3 * augmented:.1f} ms a batch with it, "
            f"{1e3 * plain:.1f} ms without ({count(len(found.with_s), 'round')}, medians)."
        )
    if found.waited_share is not None:
        yield (
            f"The training waits {found.waited_share:.0%} of its time for these batches (start-up left out). The "
            "rates above are loading alone: a training step that uses the CPUs leaves workers less of them."
        )
    if found.batch_sizes:
        working = [one for one in found.batch_sizes if one.rates]
        rates = [f"{one.candidate.batch_size}: {mean_rate(one.rates).value:.0f}" for one in working]
        yield f"Samples/s by batch size: {', '.join(rates)}."
    if found.others is not None and found.others >= BUSY_ABOVE:
        yield f"Other processes used {found.others:.0%} of the CPUs meanwhile: measure again when the machine is quiet."
    if found.saved is not None:
        yield (
            f"Kept in {found.saved}: a loader made with profile={found.saved!r} (or tune=True, where that is the usual "
            "file) is loaded so."
        )
    elif found.not_saved is not None:
        yield f"Not kept in a profile: {found.not_saved}."


def _show_advice(found: LoaderReport, screen: Screen) -> None:
    screen.text(f"Recommendations for {found.name}:")
    for one in found.recommendations:
        screen.item("!" if one.warning else "-", str(one), style="bold yellow" if one.warning else "")
    if not found.recommendations:
        screen.text("none", 2)


def _training(training: Training) -> str:
    busy = f"busy {training.gpu_percent:.0f} % of it" if training.gpu_percent is not None else training.gpu
    return f"The training was run once, in {training.seconds:.1f} s; GPU: {busy}."
