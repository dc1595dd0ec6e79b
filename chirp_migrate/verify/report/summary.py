"""What a verification found, in at most 25 lines: the verdict, and what people ask about it first."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator

from chirp_migrate.console.paint import count
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.session import Measurements, Outcome
from chirp_migrate.verify.settings import Settings
from chirp_migrate.verify.verdict import Verdict

__all__ = ["sentence", "short", "summary_lines"]

_INDENT, _NARROWEST = 12, 40
_LINES = {"undecided": 6, "differs": 4, "left out": 2, "the same": 3}
"""At most so many of one fact; one of the others."""
_SHORTER = (
    ("single_fold_training", "single"),
    ("k_fold_cross_validation", "k_fold"),
    ("_with_predefined_", " given "),
    ("_with_", " "),
)


def summary_lines(
    measurements: Measurements, outcome: Outcome, settings: Settings, discovery: Discovery, width: int
) -> list[str]:
    """Total, the share of the possible saving that is reached, the ends, and what is not known.

    No line is wider than ``width``, but for terminals of fewer than 40 columns.
    """
    facts = _facts(measurements, outcome, settings, discovery)
    return [line for name, text in facts for line in _lines(name, text, max(width, _NARROWEST))]


def short(label: str) -> str:
    """Long names lose what every one of them has in common."""
    module, dot, name = label.partition(".")
    if not dot:
        return label
    name = name.removeprefix("TrainingEngine.")
    for word, shorter in _SHORTER:
        name = name.replace(word, shorter)
    return f"{module}.{name}"


def sentence(text: str) -> str:
    """With a capital and a point; the label of an entry point that it begins with stays as it is written."""
    text = text.rstrip(".")
    return f"{text}." if re.match(r"\w+[._]|\w+: ", text) else f"{text[:1].upper()}{text[1:]}."


def _facts(
    measurements: Measurements, outcome: Outcome, settings: Settings, discovery: Discovery
) -> Iterator[tuple[str, str]]:
    if outcome.total is None:
        yield "time", "not measured, as the training differs"
    else:
        yield from _times(measurements, outcome, outcome.total)
    if not measurements.equivalence.differences:
        yield from _not_known(measurements, outcome)
    yield from _sameness(measurements, discovery)
    if discovery.source is Source.FOUND:
        sizes = settings.sizes
        amount = f"{count(sizes.epochs, 'epoch')} of {sizes.samples} samples in batches of {sizes.batch_size}"
        yield "trained", f"{count(len(measurements.labels), 'entry point')}, {amount}"
    timed = measurements.timed
    if timed.kept_though_disturbed:
        yield "disturbed", f"{timed.kept_though_disturbed} of {count(len(timed.used), 'round')}: others used the CPUs"


def _times(measurements: Measurements, outcome: Outcome, total: Ratio) -> Iterator[tuple[str, str]]:
    before, after = (statistics.median(measurements.total(side)) for side in ("before", "after"))
    yield "total", f"{before:.2f} s before, {after:.2f} s after: medians of {count(total.rounds, 'round')}"
    if outcome.headspace is not None:
        yield "possible", _reached(1 - total.value, outcome.headspace)
    if len(outcome.entries) > 1:
        best, *_, worst = sorted(outcome.entries, key=lambda label: outcome.entries[label].value)
        for name, label in (("best", best), ("worst", worst)):
            yield name, f"{_saved(outcome.entries[label])}: {short(label)}"


def _reached(saved: float, headspace: float) -> str:
    could = f"perfect loading would save {headspace:.0%}"
    if headspace < 0.005:
        return "nothing: perfect loading would save no time"
    return f"{could}; {max(0.0, min(1.0, saved / headspace)):.0%} of that is reached"


def _saved(ratio: Ratio) -> str:
    """``38 % less time [31, 45]``, or ``more``; the interval is of what is named, the smaller end first."""
    ends = [100 * (1 - value) for value in (ratio.value, ratio.high, ratio.low)]
    word = "less" if ends[0] >= 0 else "more"
    if word == "more":
        ends = [-ends[0], -ends[2], -ends[1]]
    value, low, high = (f"{end:.0f}" for end in ends)
    return f"{value} % {word} time [{low}, {high}]"


def _not_known(measurements: Measurements, outcome: Outcome) -> Iterator[tuple[str, str]]:
    undecided = [label for label, verdict in outcome.verdicts.items() if verdict is Verdict.UNDECIDED]
    if undecided:
        yield "undecided", ", ".join(map(short, undecided))
    left_out = [*measurements.failing, *measurements.no_room]
    if left_out:
        fail = f"{len(measurements.failing)} fail before, too" if measurements.failing else ""
        room = f"{len(measurements.no_room)} beyond the budget" if measurements.no_room else ""
        yield "left out", f"{', '.join(filter(None, (fail, room)))}: {', '.join(map(short, left_out))}"


def _sameness(measurements: Measurements, discovery: Discovery) -> Iterator[tuple[str, str]]:
    found = measurements.equivalence
    if found.differences:
        if others := found.differences[1:]:  # the first is in the verdict
            yield "differs", f"{len(others)} more: {' '.join(map(sentence, others))}"
        return
    augmented = found.smallest_p or {}
    exact = len(measurements.labels) - len(augmented)
    limited = discovery.compared(any(entry.passes for entry in measurements.probe["before"].values()))
    text = limited or f"{count(exact, 'entry point')} to the last bit in every batch, loss and result"
    shares = [one.share for of in found.noticed.values() for one in of.values()]
    if augmented:
        text = f"{text.rstrip('.')}; {len(augmented)} in distribution"
    if shares:
        text += f" (a probability that changed by {max(shares):.2f} would be noticed 9 times in 10)"
    yield "the same", text
    if found.notes:
        yield "notes", f"{len(found.notes)} of the comparison: -v shows them"


def _lines(name: str, text: str, width: int) -> list[str]:
    first, rest = f"{name:{_INDENT}}", " " * _INDENT
    return textwrap.wrap(
        f"{text.rstrip('.')}.",
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        max_lines=_LINES.get(name, 1),
        placeholder=" … (-v)",
    )
