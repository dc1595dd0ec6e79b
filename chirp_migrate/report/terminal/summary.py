"""Print the result of a verification in at most 25 lines: the verdict and the most important values."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import as_sentence, format_percent, format_value, pluralize
from chirp_migrate.report.terminal.verdict_lines import show_verify_details, verdict_style
from chirp_migrate.report.verdict_rows import short_label, total_times
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.process.background_load import BUSY_ABOVE
from chirp_migrate.verify.verify_report import VerifyReport

_INDENT = 14
_LINES = {"inconclusive": 3, "own run": 2, "differs": 4, "left out": 2, "the same": 3, "not seen": 4}
"""Largest number of lines for a fact, by name of the fact. All other facts have one line."""


def show_verify_report(report: VerifyReport, screen: Screen) -> None:
    """Print the verdict and the most important values. With ``-q``, print only the verdict; with ``-v``, everything."""
    style = verdict_style(report.verdict)
    screen.term(f"Verdict: {report.verdict}.", as_sentence(report.reason), indent=0, style=style, hang=2)
    if not screen.quiet and report.verdict != "failed":
        screen.line()
        for name, text in _key_facts(report):
            screen.text(f"{text.rstrip('.')}.", first=f"{name:{_INDENT}}", most=_LINES.get(name, 1))
    if screen.verbose:
        if report.simulated is not None:
            screen.text(report.simulated.what)
        show_verify_details(report, screen)


def _key_facts(report: VerifyReport) -> Iterator[tuple[str, str]]:
    if report.ratio is None:
        yield "time", "not measured, because the training differs" if report.differences else "too few rounds"
    else:
        yield from _time_facts(report, report.ratio)
    if not report.differences:
        yield from _inconclusive_facts(report)
    yield from _equivalence_facts(report)
    if report.described.unseen:
        yield "not seen", report.described.unseen
    work = report.workload
    if work is not None and work.source == "found":
        amount = f"{pluralize(work.epochs, 'epoch')} of {work.samples} samples in batches of {work.batch_size}"
        yield "trained", f"{pluralize(len(work.entry_points), 'entry point')}, {amount}"
    others = report.rounds.others_median
    if others is not None and others > BUSY_ABOVE:
        yield "disturbed", f"other processes used {format_percent(others)} of the CPUs"


def _time_facts(report: VerifyReport, ratio: Ratio) -> Iterator[tuple[str, str]]:
    together = total_times(report)
    if together is not None and {"before", "after"} <= together.seconds.keys():
        before, after = (together.median(side, "-") for side in ("before", "after"))
        yield "total", f"{before} s before, {after} s after, of your own training: {pluralize(ratio.rounds, 'round')}"
    yield from _own_run_facts(report)
    if report.zero_cost_ratio is not None:
        yield "possible", _describe_headroom(1 - ratio.value, max(0.0, 1 - report.zero_cost_ratio.value))
    if len(report.ratios) > 1:
        best, *_, worst = sorted(report.ratios, key=lambda label: report.ratios[label].value)
        for name, label in (("best", best), ("worst", worst)):
            yield name, f"{_describe_saving(report.ratios[label])}: {short_label(label)}"


def _own_run_facts(report: VerifyReport) -> Iterator[tuple[str, str]]:
    """Yield epoch time, start-up time and saving of the entry point whose full training takes longest.

    The full training has the user's numbers of epochs and folds.
    """
    timed = [(label, own) for label, own in report.own_runs.items() if own.epochs and label in report.ratios]
    if not timed:
        return
    label, own = max(timed, key=lambda pair: pair[1].folds * pair[1].epochs * pair[1].epoch_s["before"])
    epoch, start_s = ([format_value(of[side]) for side in ("before", "after")] for of in (own.epoch_s, own.start_s))
    epochs = f"{pluralize(own.epochs, 'epoch')}{' (assumed)' if own.assumed else ''}"
    parts = f"{epoch[0]} -> {epoch[1]} s an epoch, {start_s[0]} -> {start_s[1]} s start-up a fold"
    # Long lines are cut, so the least important part is last.
    yield "own run", f"{_describe_saving(report.ratios[label])} in {epochs}: {parts}: {short_label(label)}"


def _describe_headroom(saved: float, headroom: float) -> str:
    could = f"zero-cost loading would save {format_percent(headroom)}"
    if headroom < 0.005:
        return "nothing: zero-cost loading would save no time"
    return f"{could}; {format_percent(max(0.0, min(1.0, saved / headroom)))} of that is reached"


def _describe_saving(ratio: Ratio) -> str:
    """Return the saving with its interval, such as ``38 % less time [31, 45]`` or ``5 % more time [1, 9]``."""
    value, low, high = (100 * one for one in ratio.saved)
    if value >= 0:
        return f"{value:.0f} % less time [{low:.0f}, {high:.0f}]"
    return f"{-value:.0f} % more time [{-high:.0f}, {-low:.0f}]"


def _inconclusive_facts(report: VerifyReport) -> Iterator[tuple[str, str]]:
    inconclusive = [label for label, own in report.verdicts.items() if own.verdict in ("inconclusive", "undecided")]
    if inconclusive and len(report.verdicts) > 1:  # a single entry point has the verdict of the whole verification
        yield "inconclusive", ", ".join(map(short_label, inconclusive))
    work = report.workload
    if work is not None and (work.failing or work.no_room):
        fail = f"{pluralize(len(work.failing), 'entry point')} also failed before the migration" if work.failing else ""
        room = f"{pluralize(len(work.no_room), 'entry point')} did not fit in the time budget" if work.no_room else ""
        left_out = ", ".join(map(short_label, [*work.failing, *work.no_room]))
        yield "left out", f"{', '.join(filter(None, (fail, room)))}: {left_out}"


def _equivalence_facts(report: VerifyReport) -> Iterator[tuple[str, str]]:
    if report.differences:
        if others := report.differences[1:]:  # the verdict line has the first difference
            yield "differs", f"{len(others)} more: {' '.join(as_sentence(one.message) for one in others)}"
        return
    augmented = report.smallest_adjusted_p.keys() | set(report.unrepeatable)
    exact = (0 if report.workload is None else len(report.workload.entry_points)) - len(augmented)
    equal = f"{'is' if exact == 1 else 'are'} equal to the last bit in every batch, loss and result of two epochs"
    bits = f"{pluralize(exact, 'entry point')} {equal}" if exact else ""
    text = report.described.compared or bits
    if augmented:
        distributed = (
            f"{len(augmented)} in distribution"
            if text
            else f"{pluralize(len(augmented), 'entry point')} in distribution"
        )
        text = "; ".join(filter(None, (text.rstrip("."), distributed)))
    if report.detectable_changes:
        share = max(report.detectable_changes.values())
        text += f" (9 of 10 runs of verify find a probability that changed by {share:.2f})"
    yield "the same", text
    if report.notes:
        yield "notes", f"{len(report.notes)}; show them with -v"
