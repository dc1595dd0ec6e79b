"""Write tables of how often each verdict occurs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import made_by, table

from chirp_migrate.verify.verdict import Verdict
from decisions_bench.trials import Rate, Tally

__all__ = ["as_markdown", "in_short", "replace_between_marks", "targets"]

_KINDS = (Verdict.FASTER, Verdict.SLOWER)
_MARKS = ("<!-- error rates: begin -->", "<!-- error rates: end -->")

#: Noise → largest number of rounds → scenario → results.
Tallies = Mapping[str, Mapping[int, Mapping[str, Tally]]]


def targets(tallies: Tallies) -> list[tuple[str, Rate, bool]]:
    """Return each goal, its result with the longest budget and the recorded noise, and whether it holds."""
    *_, by_rounds = tallies.values()
    found = by_rounds[max(by_rounds)]
    same = found["A/A"].rate(Verdict.FASTER)
    slower = found["one 10 % slower, 15 twice as fast"].unnamed_rate
    half = found["all 50 % less"].rate(Verdict.FASTER)
    return [
        ("two equal versions (A/A) are called *faster* at most once in 100", same, same.share <= 0.01),
        ("one of 16 entry points 10 % slower passes unnamed at most twice in 100", slower, slower.share <= 0.02),
        ("a true 50 % found in at least 95 of 100", half, half.share >= 0.95),
    ]


def as_markdown(tallies: Tallies, settings: Mapping[str, Any]) -> str:
    """Return all tables, with the conditions of the measurement."""
    budgets = " / ".join(map(str, next(iter(tallies.values()))))
    lines = [
        f"Simulated times: each line of a table is {settings['trials']} verifications of 16 entry points, which the "
        f"code of `verify` decides. The values of a cell belong to budgets for {budgets} rounds of all entry points. "
        f"Wilson's 95 % intervals are at most ±{_widest(settings['trials']):.1%}.",
        "",
    ]
    header = ["true", "faster, %", "slower, %", "not shown, %", "a slower one unnamed, %", "rounds made"]
    for noise, by_rounds in tallies.items():
        names = list(next(iter(by_rounds.values())))
        rows = [_row(name, [found[name] for found in by_rounds.values()]) for name in names]
        lines += [f"{noise}:", "", *table(header, rows, left=len(header)), ""]
    lines += [*_wanted(tallies), "", f"{made_by(settings)}."]
    return "\n".join(lines) + "\n"


def in_short(tallies: Tallies, at_margin: Mapping[float, Tally], settings: Mapping[str, Any]) -> str:
    """Return one table with the shortest and the longest budget, the goals, and how often "not slower" is wrong.

    Args:
        at_margin: standard deviation of slow changes of the noise → results with one entry point that is slower by just
            more than the margin.
    """
    budgets = list(next(iter(tallies.values())))
    shown = [(noise, by[rounds], rounds) for noise, by in tallies.items() for rounds in (budgets[0], budgets[-1])]
    heads = [f"{_head(noise)}, {rounds} rounds" for noise, _, rounds in shown]
    rows = [[name, *(_percentages(found[name]) for _, found, _ in shown)] for name in shown[0][1]]
    lines = [
        f"Each line of the table is {settings['trials']} simulated verifications of 16 entry points, which the code of "
        "`verify` decides. Each cell contains three percentages of these verifications: the verdict was *faster* / the "
        "verdict was *slower* / the verdict was *faster*, and a slower entry point was not named. In the remaining "
        f"verifications, the verdict was *not shown*. Wilson's 95 % intervals are at most "
        f"±{_widest(settings['trials']):.1%}.",
        "",
        *table(["true", *heads], rows, left=len(heads) + 1),
    ]
    lines += ["", *_wanted(tallies), ""]
    rates = {drift: tally.unnamed_rate for drift, tally in at_margin.items()}
    texts = [
        f"{_with_interval(rate)} if the slow changes have a standard deviation of {drift:.0%}"
        for drift, rate in rates.items()
    ]
    lines += [
        "A last simulation has noise with a standard deviation of 6 %. One entry point is slower by just more than the "
        "margin, and 15 entry points take half the time. By design, `verify` misses the slower entry point in at most "
        "2.5 % of the verifications. The noise includes slow changes. `verify` did not name the slower entry point in "
        f"{', and in '.join(texts)} ({rates[0.0].of:,} trials each).",
        "",
        f"{made_by(settings)}.",
    ]
    return "\n".join(lines) + "\n"


def _wanted(tallies: Tallies) -> list[str]:
    rows = [(name, _with_interval(rate), "yes" if holds else "**no**") for name, rate, holds in targets(tallies)]
    return table(["wanted", "found", "holds"], rows, left=3)


def _with_interval(rate: Rate) -> str:
    low, high = rate.interval()
    return f"{rate.share:.1%} [{low:.1%}, {high:.1%}]"


def _head(noise: str) -> str:
    return noise.partition(" of ")[0] if noise[0].isdigit() else "recorded noise"


def replace_between_marks(document: Path, text: str) -> None:
    """Replace the text between the marks in ``document``.

    Raises:
        ValueError: the document has no such marks.
    """
    old = document.read_text(encoding="utf-8")
    pattern = re.compile(f"({re.escape(_MARKS[0])}\n).*(\n{re.escape(_MARKS[1])})", re.DOTALL)
    if not pattern.search(old):
        raise ValueError(f"{document} has no place for the tables: {' and '.join(_MARKS)}")
    document.write_text(pattern.sub(lambda found: f"{found[1]}\n{text}{found[2]}", old), encoding="utf-8")


def _percentages(tally: Tally) -> str:
    rates = (*map(tally.rate, _KINDS), tally.unnamed_rate)
    return " / ".join(f"{100 * rate.share:.1f}" for rate in rates)


def _row(name: str, tallies: Sequence[Tally]) -> list[str]:
    kinds = [(Verdict.FASTER,), (Verdict.SLOWER,), (Verdict.NOT_SHOWN, Verdict.MODEL_BOUND)]
    rates = [*([tally.rate(*kind) for tally in tallies] for kind in kinds), [tally.unnamed_rate for tally in tallies]]
    cells = [" / ".join(f"{100 * rate.share:.1f}" for rate in some) for some in rates]
    return [name, *cells, " / ".join(f"{tally.rounds:.0f}" for tally in tallies)]


def _widest(trials: int) -> float:
    low, high = Rate(trials // 2, trials).interval()
    return (high - low) / 2
