"""What ``verify`` found, as lines: the verdict and its meaning, figures, times, and what they were taken on."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from chirp_migrate.console.paint import figure
from chirp_migrate.report.terminal.screen import DIM, Screen
from chirp_migrate.report.verdict import EntryStory, Interval, MeasureStory, VerdictStory

__all__ = ["detail_lines", "head_lines", "when"]

_MEANINGS = {
    "faster": "Training takes at least {threshold} less time than before the migration, and nothing that was compared "
    "differs from the training before.",
    "faster, entry points undecided": "Training takes at least {threshold} less time in all, and nothing that was "
    "compared differs from the training before. Whether some entry points became slower is not known.",
    "not shown to be faster": "Nothing that was compared differs from the training before. That {threshold} of the "
    "time are saved is not shown: it is less, or the measurement varied too much to tell.",
    "model-bound": "Nothing that was compared differs from the training before. Even loading that takes no time at all "
    "would not save {threshold}: the time goes into the model.",
    "slower": "Nothing that was compared differs from the training before, but it takes longer.",
    "not equivalent": "The training is not the same as before the migration, so nothing is said about its speed.",
    "failed": "The project's own code failed, so nothing was compared.",
}
_GREEN, _YELLOW, _RED = "1;32", "1;33", "1;31"
_COLOURS = {
    "faster": _GREEN,
    "faster, entry points undecided": _YELLOW,
    "not shown to be faster": _YELLOW,
    "model-bound": _YELLOW,
}
_MARKS = {"met": "32", "not met": "31"}
#: Columns of a bar, and from which width on it gets the larger one.
_BAR, _LONG_BAR, _WIDE = 10, 30, 140


def head_lines(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    """The verdict, what it means, and the sentence that ``verify`` gave for it."""
    yield screen.paint(f"Verdict: {verdict.verdict}", _COLOURS.get(verdict.verdict, _RED))
    meaning = _MEANINGS.get(verdict.verdict, "")
    yield from screen.text(meaning.format(threshold=_percent(verdict.threshold)), 2)
    yield from screen.text(_sentence(verdict.reason), 2)
    if verdict.simulated is not None:
        yield from screen.text(verdict.simulated, 2, _YELLOW)
    headspace = None if verdict.total is None else verdict.total.perfect
    if headspace is not None:
        share = _percent(max(0.0, headspace.saved[0]))
        yield from screen.text(f"Loading that takes no time would save {share}: no loader can save more.", 2)


def detail_lines(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    """Everything behind the verdict."""
    yield from _measures(verdict, screen)
    yield from _times(verdict, screen)
    yield from _targets(verdict, screen)
    yield from _sameness(verdict, screen)
    yield from _conditions(verdict, screen)


def when(moment: str) -> str:
    """``2026-11-21 12:50 UTC`` of an ISO 8601 time in UTC; anything else as it is."""
    day, letter, time = moment.partition("T")
    return f"{day} {time[:5]} UTC" if letter and moment.endswith("Z") else moment


def _measures(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    shown = [one for one in verdict.measures if (one.before, one.after) != (None, None)]
    if not shown:
        return
    simulated = "" if verdict.simulated is None else " (device steps simulated)"
    yield from screen.heading(f"Key figures, all entry points together{simulated}")
    rows = [[_named(one), figure(one.before), figure(one.after)] for one in shown]
    yield from screen.table(["", "before", "after"], rows)


def _times(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    entries = [*([] if verdict.total is None else [verdict.total]), *verdict.entries]
    timed = [entry for entry in entries if entry.ratio is not None]
    if not timed:
        return
    yield from screen.heading("Seconds of training, and how much of them is saved (interval)")
    wide = screen.width >= _WIDE
    header = ["entry point", "before", "after", "after : before", "saved", *(["perfect loading"] if wide else [])]
    rows = [_time_row(entry, _LONG_BAR if wide else _BAR, wide) for entry in timed]
    left = (0, 3, len(header))
    yield from screen.table([*header, "verdict"], rows, left=left)
    yield from screen.text("Medians of the rounds that count.", 2)


def _time_row(entry: EntryStory, room: int, wide: bool) -> list[str]:
    label = "all together" if entry.label == "all" else entry.label
    sides = (entry.seconds.get(side) for side in ("before", "after"))
    seconds = [f"{statistics.median(taken):.2f}" if taken else "-" for taken in sides]
    perfect = [_saved(entry.perfect)] if wide else []
    return [label, *seconds, _bar(entry.ratio, room), _saved(entry.ratio), *perfect, entry.verdict]


def _bar(ratio: Interval | None, room: int) -> str:
    """The time after as a share of the time before, which is the whole bar; ``>`` where it is longer than that."""
    if ratio is None:
        return ""
    full = min(room, max(1, round(room * ratio.value)))
    return f"{'#' * full}{'.' * (room - full)}{'>' if ratio.value > 1 + 0.5 / room else ''}"


def _saved(ratio: Interval | None) -> str:
    """``38 % [31, 45]``; negative where time is lost."""
    if ratio is None:
        return "-"
    share, low, high = (f"{100 * value:.0f}" for value in ratio.saved)
    return f"{share} % [{low}, {high}]"


def _targets(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    if verdict.targets:
        yield from screen.heading("Required figures, after the migration")
    for one in verdict.targets:
        warning = ", beyond the point of warning" if one.warning else ""
        text = f"{one.target} ({one.requirement}): {one.why}{warning}"
        yield from screen.term(one.verdict, text, code=_MARKS.get(one.verdict, ""))


def _sameness(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    """What differs, or how it was compared; nothing where nothing was."""
    if verdict.differences:
        yield from screen.heading("What is not the same training")
    for difference in verdict.differences:
        yield from screen.item("-", _sentence(difference), code=_RED)
    if verdict.smallest_p:
        yield from screen.heading("Compared by distribution (smallest adjusted p)")
        rows = [
            [name, f"{p:.2g}", f"{verdict.noticed[name]:.2f}" if name in verdict.noticed else "-"]
            for name, p in verdict.smallest_p.items()
        ]
        yield from screen.table(["entry point", "p", "change of a probability noticed 9 times in 10"], rows)
    if verdict.notes:
        yield from screen.heading("Notes of the comparison")
    for note in verdict.notes:
        yield from screen.item("-", _sentence(note))


def _conditions(verdict: VerdictStory, screen: Screen) -> Iterator[str]:
    yield from screen.heading("What was run, and where")
    told = {
        "Before": verdict.before,
        "Training": verdict.workload,
        "Rounds": verdict.rounds,
        "Machine": verdict.machine,
        "Verified": " by ".join(filter(None, (when(verdict.created), verdict.tool))),
    }
    for name, text in told.items():
        if text:
            yield from screen.term(name, f"{text.rstrip('.')}.")
    if verdict.output_tail:
        yield from screen.heading("The last lines that the project's code printed")
    for line in verdict.output_tail.splitlines():
        yield from screen.text(line, 2, DIM)


def _named(measure: MeasureStory) -> str:
    return f"{measure.title} ({measure.unit})" if measure.unit else measure.title


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _sentence(text: str) -> str:
    """With a capital and a point; a name that it begins with stays as it is written."""
    begins_with_name = re.match(r"\S*[._:/]\S", text) is not None
    first = text[:1] if begins_with_name else text[:1].upper()
    return f"{first}{text[1:].rstrip('.')}." if text else ""
