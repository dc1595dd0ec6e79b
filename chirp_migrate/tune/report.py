"""Print the results of ``tune``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import as_sentence, format_percent, pluralize
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.tune.tune_report import (
    CandidateMeasurement,
    LoaderReport,
    SettingsComparison,
    SettingsOutcome,
    TrainingRun,
    TuneReport,
    mean_rates,
)


def show_tune_report(report: TuneReport, screen: Screen) -> None:
    """Print the report.

    With the option ``-q``, the function prints only the recommendations. With ``-v``, the function also prints all
    configurations, and all rates that were measured.
    """
    for loader in report.loaders:
        screen.line()
        if not screen.quiet:
            _show_loader(loader, screen)
            screen.line()
        _show_advice(loader, screen)
    if screen.quiet:
        return
    screen.line()
    for line in _facts_on_all_loaders(report.loaders):
        screen.text(line, hang=2)
    if report.training is not None:
        for line in _describe_training(report.training):
            screen.text(line, hang=2)
    for note in report.notes:
        screen.text(as_sentence(note), hang=2)
    screen.text(f"Measured on: {report.described}.", hang=2)


def _show_loader(loader: LoaderReport, screen: Screen) -> None:
    kind = "chirpid_patch's loader" if loader.migrated else "PyTorch's loader"
    size = "batches as sampled" if loader.batch_size is None else f"batch size {loader.batch_size}"
    screen.text(f"{loader.name}: {loader.samples} samples, {loader.role}, {size}, {kind}", style="bold", hang=2)
    screen.line()
    measured = list(zip(loader.measured, loader.comparisons, strict=True))
    worked = [(way, comparison) for way, comparison in measured if comparison.samples_per_s]
    shown = worked if screen.verbose else [each for each in worked if _is_shown(*each, loader)]
    rows = [_table_row(way, comparison, comparison.samples_per_s or 0.0, loader) for way, comparison in shown]
    if rows:
        header = ("", "samples/s", "interval", "of best", "first batch", *(["batches/s"] if screen.verbose else []))
        screen.table(header, [row[: len(header)] for row in rows], left=(0, 2), indent=0)
    if len(shown) < len(worked):
        screen.text(f"{len(worked) - len(shown)} more configurations: -v and --json show them.", 2, "dim")
    for configuration, comparison in measured:
        if not comparison.samples_per_s:
            now = " (now)" if configuration.candidate == loader.now else ""
            screen.text(f"{comparison.configuration}{now}: failed: {configuration.error}", 2, hang=2)
        elif screen.verbose:
            rates = ", ".join(f"{rate:.0f}" for rate in configuration.rates)
            screen.text(f"{comparison.configuration}, samples/s of each round: {rates}", 2, "dim", hang=2)
    screen.line()
    if loader.picked is not None:
        screen.text(_describe_pick(loader), hang=2)
    for line in _loader_facts(loader):
        screen.text(line, hang=2)


def _is_shown(measured: CandidateMeasurement, comparison: SettingsComparison, loader: LoaderReport) -> bool:
    """Return whether the report shows a configuration even without the option ``-v``.

    Without ``-v``, the report shows the picked, the best and the current configuration, and loading in the main
    process.
    """
    way = measured.candidate
    return way in (loader.picked, loader.now) or way.is_in_main_process or comparison.outcome is SettingsOutcome.BEST


def _table_row(
    measured: CandidateMeasurement, comparison: SettingsComparison, rate: float, loader: LoaderReport
) -> list[str]:
    ratio = (
        ""
        if comparison.ratio_to_best is None
        else f"{comparison.ratio_to_best:.2f}{'' if comparison.conclusive else '?'}"
    )
    marks = [name for name, way in (("picked", loader.picked), ("now", loader.now)) if measured.candidate == way]
    return [
        f"{comparison.configuration} ({', '.join(marks)})" if marks else comparison.configuration,
        f"{rate:.0f}",
        "" if comparison.interval is None else "[{:.0f}, {:.0f}]".format(*comparison.interval),
        "1" if comparison.outcome is SettingsOutcome.BEST else ratio,
        f"{statistics.median(measured.first_batch_s):.2f} s",
        f"{rate if comparison.batches_per_s is None else comparison.batches_per_s:.1f}",
    ]


def _describe_pick(loader: LoaderReport) -> str:
    rounds = pluralize(loader.rounds, "round")
    picked = "Picked" if loader.conclusive else "Picked for now"
    sure = "" if loader.conclusive else "; use a longer --time-budget to compare the configurations marked with ?"
    best = next(
        comparison.configuration for comparison in loader.comparisons if comparison.outcome is SettingsOutcome.BEST
    )
    if best == str(loader.picked):
        return f"{picked}: {loader.picked}, the fastest in {rounds}{sure}."
    from chirpid_patch.thresholds import TIED  # imports PyTorch, which the command line does without

    near = f"the smallest configuration within {format_percent(TIED)} of the best ({best})"
    return f"{picked}: {loader.picked}, {near} in {rounds}{sure}."


def _loader_facts(loader: LoaderReport) -> Iterator[str]:
    """Yield sentences on a loader that follow its table of rates, such as the time that augmentation takes."""
    if loader.cpu_share is not None:
        yield (
            f"Loading in the main process computes for {format_percent(loader.cpu_share)} of its time. For the other "
            f"{format_percent(1 - loader.cpu_share)}, loading waits for files or for a CPU."
        )
    if loader.augmentation_share is None:
        yield f"Augmentation was not measured: {loader.not_augmented}."
    else:
        augmented, plain = statistics.median(loader.with_s), statistics.median(loader.without_s)
        yield (
            f"Augmentation takes {format_percent(loader.augmentation_share)} of the loading time: a batch takes "
            f"{1e3 * augmented:.1f} ms with augmentation and {1e3 * plain:.1f} ms without (medians of "
            f"{pluralize(len(loader.with_s), 'round')})."
        )
    if loader.waited_share is not None:
        share = format_percent(loader.waited_share)
        yield f"The training waits {share} of its time for batches of this loader (without start-up)."
    if loader.batch_sizes:
        rates = [f"{way.batch_size}: {rate.value:.0f}" for way, rate in mean_rates(loader.batch_sizes).items()]
        yield f"Samples/s by batch size: {', '.join(rates)}."
    if loader.saved is None and loader.not_saved is not None:
        yield f"Not saved in a profile: {loader.not_saved}."


def _facts_on_all_loaders(loaders: Sequence[LoaderReport]) -> Iterator[str]:
    """Yield sentences on all loaders together: how busy the machine was, and where the picked settings are saved."""
    others = max((loader.others for loader in loaders if loader.others is not None), default=0.0)
    if others >= BUSY_ABOVE:
        busy = (
            f"Other processes used {'up to ' if len(loaders) > 1 else ''}{format_percent(others)} of the CPUs "
            "during the measurement"
        )
        yield f"{busy}: measure again when the machine is idle."
    if any(loader.waited_share is not None for loader in loaders):
        yield "The rates were measured without training. A training step that uses the CPUs makes loading slower."
    if any(not loader.setting for loader in loaders):
        yield "Recommended arguments, such as num_workers, belong in the call that builds the loader."
    for saved in dict.fromkeys(loader.saved for loader in loaders if loader.saved is not None):
        yield (
            f"Saved in {saved}: loaders that are built with tune={saved!r} use these settings. If this file is the "
            "default profile, loaders with tune=True also use them."
        )


def _show_advice(loader: LoaderReport, screen: Screen) -> None:
    screen.text(f"Recommendations for {loader.name}, {loader.role}:", hang=2)
    for advice in loader.recommendations:
        screen.item("!" if advice.warning else "-", str(advice), style="bold yellow" if advice.warning else "")
    if not loader.recommendations:
        screen.text("none", 2)


def _describe_training(training: TrainingRun) -> Iterator[str]:
    yield f"The training ran for {training.seconds:.1f} s, so that tune could find its loaders."
    if training.gpu_percent is not None:
        yield f"The training kept the GPU busy for {training.gpu_percent:.0f} % of this time."
    else:
        yield f"The GPU use of the training was not measured: {training.gpu}."
