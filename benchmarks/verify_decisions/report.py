"""Tables of how often each verdict came out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chirp_migrate.verify import machine as machines
from chirp_migrate.verify.verdict import Verdict
from verify_decisions.trials import Rate, Tally

__all__ = ["as_markdown", "replace_between_marks", "targets"]

_MARKS = ("<!-- error rates: begin -->", "<!-- error rates: end -->")

#: Noise → rounds that the budget has time for → scenario → what came of it.
Tallies = Mapping[str, Mapping[int, Mapping[str, Tally]]]


def targets(tallies: Tallies) -> list[tuple[str, Rate, bool]]:
    """What is wanted, what was found with the longest budget and the least noise, and whether that holds."""
    by_rounds = next(iter(tallies.values()))
    found = by_rounds[max(by_rounds)]
    same = found["A/A"].rate(Verdict.FASTER, Verdict.UNDECIDED)
    slower = found["one 10 % slower, 15 twice as fast"].rate(Verdict.FASTER)
    half = found["all 50 % less"].rate(Verdict.FASTER)
    return [
        ("A/A called faster at most once in 100", same, same.share <= 0.01),
        ("one entry point 10 % slower, called faster at most once in 20", slower, slower.share <= 0.05),
        ("a true 50 % found in at least 95 of 100", half, half.share >= 0.95),
    ]


def as_markdown(tallies: Tallies, settings: Mapping[str, Any]) -> str:
    """All tables, with the conditions under which they came about."""
    budgets = " / ".join(map(str, next(iter(tallies.values()))))
    lines = [
        f"Simulated times, {settings['trials']} verifications of 16 entry points for each line, decided by the code of "
        f"`verify`. In each cell: with a budget for {budgets} rounds of all of them. "
        f"Wilson's 95 % intervals are at most ±{_widest(settings['trials']):.1%}.",
        "",
    ]
    for noise, by_rounds in tallies.items():
        lines += [
            f"{noise}:",
            "",
            "| true | faster, % | faster, undecided, % | slower, % | not shown, % | rounds made |",
            "|---|---|---|---|---|---|",
        ]
        names = list(next(iter(by_rounds.values())))
        lines += [_row(name, [found[name] for found in by_rounds.values()]) for name in names]
        lines.append("")
    lines += ["| wanted | found | holds |", "|---|---|---|"]
    for name, rate, holds in targets(tallies):
        low, high = rate.interval()
        lines.append(f"| {name} | {rate.share:.1%} [{low:.1%}, {high:.1%}] | {'yes' if holds else '**no**'} |")
    lines += ["", f"Machine: {machines.line(settings['machine'])}. Command: `{settings['command']}`."]
    return "\n".join(lines) + "\n"


def replace_between_marks(document: Path, text: str) -> None:
    """Put ``text`` between the marks in ``document``.

    Raises:
        ValueError: the document has no such marks.
    """
    old = document.read_text(encoding="utf-8")
    pattern = re.compile(f"({re.escape(_MARKS[0])}\n).*(\n{re.escape(_MARKS[1])})", re.DOTALL)
    if not pattern.search(old):
        raise ValueError(f"{document} has no place for the tables: {' and '.join(_MARKS)}")
    document.write_text(pattern.sub(lambda found: f"{found[1]}\n{text}{found[2]}", old), encoding="utf-8")


def _row(name: str, tallies: Sequence[Tally]) -> str:
    kinds = [(Verdict.FASTER,), (Verdict.UNDECIDED,), (Verdict.SLOWER,), (Verdict.NOT_SHOWN, Verdict.MODEL_BOUND)]
    cells = [" / ".join(f"{100 * tally.rate(*kind).share:.1f}" for tally in tallies) for kind in kinds]
    made = " / ".join(f"{tally.rounds:.0f}" for tally in tallies)
    return f"| {name} | {' | '.join(cells)} | {made} |"


def _widest(trials: int) -> float:
    low, high = Rate(trials // 2, trials).interval()
    return (high - low) / 2
