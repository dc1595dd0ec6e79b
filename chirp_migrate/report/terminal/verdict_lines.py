"""Print the details of the result of ``verify``: metrics, times, differences, and the machine."""

from __future__ import annotations

from collections.abc import Sequence

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import as_sentence, format_time, format_value
from chirp_migrate.report.verdict_rows import (
    EntryTimes,
    entry_point_times,
    measured_metrics,
    short_label,
    tone_of_verdict,
    total_times,
)
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.spec import LoaderPassTrace
from chirp_migrate.verify.verify_report import VerifyReport

_GREEN, _YELLOW, _RED = "bold green", "bold yellow", "bold red"
_STYLES = {"good": _GREEN, "open": _YELLOW, "bad": _RED}
_MARKS = {"met": "green", "not met": "red"}
#: Width of short bars and of long bars, and the smallest width of the screen for long bars, in columns.
_BAR, _LONG_BAR, _WIDE = 10, 30, 140
#: Headings of the two columns on zero-cost loading, and the smallest width of the screen for both columns, in columns.
_ZERO_COST, _WITH_PERFECT = ("model only", "zero-cost loading"), 100


def verdict_style(verdict: str) -> str:
    """Return the style (colour) in which a terminal shows a verdict."""
    return _STYLES[tone_of_verdict(verdict)]


def show_verify_details(report: VerifyReport, screen: Screen) -> None:
    """Print all details of a verification."""
    _show_metrics(report, screen)
    _show_times(report, screen)
    _show_training(report, screen)
    _show_targets(report, screen)
    _show_differences(report, screen)
    if report.problems:
        screen.heading("Loading problems (chirp-migrate doctor shows line and fix)")
    for one in report.problems:
        screen.item("-", f"{one.message} [{one.check}]")
    _show_conditions(report, screen)


def _show_metrics(verdict: VerifyReport, screen: Screen) -> None:
    shown = measured_metrics(verdict)
    if not shown:
        return
    simulated = "" if verdict.simulated is None else " (device steps simulated)"
    screen.heading(f"Key figures, all entry points together{simulated}")
    rows = [
        [f"{one.title} ({one.unit})" if one.unit else one.title, format_value(before), format_value(after)]
        for one, before, after in shown
    ]
    screen.table(["", "before", "after"], rows)


def _show_times(verdict: VerifyReport, screen: Screen) -> None:
    together, entries = total_times(verdict), entry_point_times(verdict)
    timed = [*([] if together is None else [together]), *entries]
    if not timed:
        return
    screen.heading("Seconds of training, and the share saved (interval)")
    beside = screen.width >= _WITH_PERFECT
    header = ["entry point", "before", "after", "after : before", "saved", *(_ZERO_COST if beside else ())]
    rows = [_time_row(entry, _LONG_BAR if screen.width >= _WIDE else _BAR, beside) for entry in timed]
    screen.table([*header, "verdict"], rows, left=(0, 3, len(header)))
    screen.text("Times of your own training, computed from start-up and epoch times: medians of the rounds.", 2)
    _show_epochs(verdict, screen)


def _show_epochs(verdict: VerifyReport, screen: Screen) -> None:
    """Print epoch time and start-up time of each entry point, except entry points that were timed only as a whole."""
    rows = []
    for label, own in verdict.own_runs.items():
        if own.epochs:
            epoch_s = [format_value(own.epoch_s.get(side)) for side in ("before", "after")]
            start_s = [format_value(own.start_s.get(side)) for side in ("before", "after")]
            assumed = " (assumed)" if own.assumed else ""
            rows.append([short_label(label), *epoch_s, *start_s, f"{own.folds} x {own.epochs}{assumed}"])
    if rows:
        screen.heading("Seconds for each epoch, and start-up seconds for each fold")
        header = ["entry point", "epoch before", "after", "start-up before", "after", "folds x epochs"]
        screen.table(header, rows, left=(0,))


def _time_row(entry: EntryTimes, room: int, beside: bool) -> list[str]:
    before, after, cached = (entry.median(side, "-") for side in ("before", "after", "cached"))
    zero_cost_ratio = [cached, _saving_text(entry.zero_cost_ratio)] if beside else []
    return [
        entry.label,
        before,
        after,
        _draw_bar(entry.ratio, room),
        _saving_text(entry.ratio),
        *zero_cost_ratio,
        entry.verdict,
    ]


def _draw_bar(ratio: Ratio, room: int) -> str:
    """Draw a time ratio (after / before) as a bar, such as ``####......`` for 40 %. A final ``>`` means over 100 %."""
    full = min(room, max(1, round(room * ratio.value)))
    return f"{'#' * full}{'.' * (room - full)}{'>' if ratio.value > 1 + 0.5 / room else ''}"


def _saving_text(ratio: Ratio | None) -> str:
    """Return the saving as text, such as ``38 % [31, 45]``; negative if the training takes longer."""
    if ratio is None:
        return "-"
    share, low, high = (f"{100 * value:.0f}" for value in ratio.saved)
    return f"{share} % [{low}, {high}]"


def _show_targets(verdict: VerifyReport, screen: Screen) -> None:
    if verdict.targets:
        screen.heading("Targets for the migrated version")
    for one in verdict.targets:
        text = f"{one.target} ({one.requirement}): {one.why}"
        screen.term(one.verdict, text, style=_MARKS.get(one.verdict, ""))


def _show_differences(verdict: VerifyReport, screen: Screen) -> None:
    """Print the differences between the trainings, and how trainings with augmentation were compared."""
    if verdict.differences:
        screen.heading("Differences between the trainings")
    for difference in verdict.differences:
        screen.item("-", as_sentence(difference.message), style=_RED)
    if verdict.smallest_adjusted_p:
        screen.heading("Compared by distribution (smallest adjusted p)")
        rows = [
            [
                f"{label} (not repeatable)" if label in verdict.unrepeatable else label,
                f"{p:.2g}",
                "-" if (share := verdict.detectable_changes.get(label)) is None else f"{share:.2f}",
            ]
            for label, p in verdict.smallest_adjusted_p.items()
        ]
        screen.table(["entry point", "p", "change of a probability that 9 of 10 runs find"], rows)
    limits = [one for one in (verdict.described.compared, verdict.described.unseen) if one]
    if verdict.notes or limits:
        screen.heading("Notes of the comparison")
    for note in (*limits, *verdict.notes):
        screen.item("-", as_sentence(note))


def _show_conditions(verdict: VerifyReport, screen: Screen) -> None:
    screen.heading("What was run, and where")
    conditions = {
        "Before": verdict.before,
        "Training": verdict.described.workload,
        "Rounds": verdict.described.rounds,
        "Machine": verdict.described.machine,
        "Verified": " by ".join(filter(None, (format_time(verdict.created), verdict.tool))),
        "Packages": _join_values(verdict.environment.get("packages")),
        "Environment variables": _join_values(verdict.environment.get("variables")),
        "Time spent on": ", ".join(f"{name} {seconds:.0f} s" for name, seconds in verdict.spent_s.items()),
        "Not copied": "; ".join(verdict.copies),
        "Not trained": "; ".join(() if verdict.workload is None else verdict.workload.left_out),
    }
    for name, text in conditions.items():
        if text:
            screen.term(name, f"{text.rstrip('.')}.")
    if verdict.output_tail:
        screen.heading("The last lines that the project's code printed")
    for line in verdict.output_tail.splitlines():
        screen.text(line, 2, "dim")


def _join_values(values: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, dict) else ""


def _show_training(report: VerifyReport, screen: Screen) -> None:
    """Print the number of samples in an epoch, and the last losses. If ``verify`` recorded no loader, print nothing."""
    before, after = (report.passes.get(side, {}) for side in ("before", "after"))
    if not any(before.values()):
        return
    screen.heading("Samples per epoch and last losses in the watched run (training / validation)")
    rows = []
    for label, passes in before.items():
        others = after.get(label, [])
        counts = [
            ">".join(dict.fromkeys(_samples_per_pass(of, role) for of in (passes, others)))
            for role in ("train", "validation")
        ]
        rows.append([short_label(label), *counts, _last_losses(passes), _last_losses(others)])
    screen.table(["entry point", "train", "validation", "before", "after"], rows)


def _samples_per_pass(passes: Sequence[LoaderPassTrace], role: str) -> str:
    counts = sorted({record.samples for record in passes if record.role == role})
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _last_losses(passes: Sequence[LoaderPassTrace]) -> str:
    """Return the mean losses of the last training epoch and the last validation, such as ``0.3100 / 0.4200``."""
    texts = []
    for role in ("train", "validation"):
        losses = [record.losses for record in passes if record.role == role and record.losses]
        texts.append(f"{sum(map(float.fromhex, losses[-1])) / len(losses[-1]):.4f}" if losses else "-")
    return " / ".join(texts)
