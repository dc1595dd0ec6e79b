"""Tables of the results, and the place in the documentation where they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chirp_migrate.verify import machine
from chirp_migrate.verify.disturbance import BUSY_ABOVE
from chirp_migrate.verify.verdict import Verdict
from verify_decisions.coverage import Coverage
from verify_decisions.pool import Pool, of_condition
from verify_decisions.trees import CONDITIONS, SIZES, Condition
from verify_decisions.trials import Rate, Tally, measured_ratio, spread

__all__ = ["as_markdown", "replace_between_marks", "targets"]

_BEGIN, _END = "<!-- error rates: begin -->", "<!-- error rates: end -->"


def targets(tallies: Mapping[str, Sequence[Tally]]) -> list[tuple[str, Rate, bool]]:
    """What the procedure must reach, with the most rounds that were tried: text, rate found, whether it holds."""
    last = {name: by_most[-1] for name, by_most in tallies.items()}
    unchanged = last["A/A: no change"].rate(Verdict.FASTER)
    ten = last["10 % less time"].rate(Verdict.FASTER)
    half = last["50 % less time"].rate(Verdict.FASTER)
    return [
        ("identical trees called faster at most once in 100", unchanged, unchanged.share <= 0.01),
        ("a true 10 % called 20 % at most once in 50", ten, ten.share <= 0.02),
        ("a true 50 % found in at least 95 of 100", half, half.share >= 0.95),
    ]


def as_markdown(
    pool: Pool,
    tallies: Mapping[str, Sequence[Tally]],
    coverages: Sequence[Coverage],
    settings: Mapping[str, Any],
) -> str:
    """Rates by condition and rounds, what must hold, the simulated coverage, and what it was measured on."""
    shares = [each.others for each in pool.rounds if each.others is not None]
    busy = sum(each.disturbed for each in pool.rounds)
    load = "with load of its own making beside it" if pool.load else "beside whatever else ran"
    watched = (
        f"others used {statistics.median(shares):.0%} of the CPUs in the median round, {min(shares):.0%} to "
        f"{max(shares):.0%}; {busy} of {len(pool.rounds)} rounds were disturbed (over {BUSY_ABOVE:.0%})"
        if shares
        else "other processes were not watched"
    )
    nice = settings.get("niceness")
    priority = f", at niceness {nice}" if nice else ""
    lines = [
        f"Recorded: {len(pool.rounds)} rounds of real processes{priority}, {load} ({watched}).",
        f"Each condition: {settings['trials']} verifications of rounds drawn from them, with replacement; a change "
        f"is that share more or fewer epochs of {SIZES.epochs}. [ ] are Wilson's 95 % intervals for the drawing; the "
        "recording is one.",
        "",
        "| condition | median ratio recorded | spread of one round | rounds at most | faster by 20 % | slower "
        "| neither shown | rounds made | discarded |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for condition in CONDITIONS:
        lines += _rows(pool, condition, tallies[condition.name])
    lines += ["", "| wanted | found | holds |", "|---|---|---|"]
    lines += [f"| {text} | {_rate(rate)} | {'yes' if holds else '**no**'} |" for text, rate, holds in targets(tallies)]
    lines += ["", *_coverage_table(coverages, settings["simulations"])]
    lines += ["", f"Machine: {machine.line(settings['machine'])}. Command: `{settings['command']}`."]
    return "\n".join(lines) + "\n"


def replace_between_marks(path: Path, text: str) -> None:
    """Put ``text`` between the marks of a document.

    Raises:
        ValueError: the document has no such marks.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the table: it needs the lines {_BEGIN} and {_END}.")
    path.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")


def _rows(pool: Pool, condition: Condition, tallies: Sequence[Tally]) -> list[str]:
    rounds = of_condition(pool, condition)
    rows = []
    for number, tally in enumerate(tallies):
        what = (
            f"{condition.name} (true ratio {condition.ratio:.2f}) | {measured_ratio(rounds):.2f} | {spread(rounds):.0%}"
            if number == 0
            else " | | "
        )
        faster, slower = tally.rate(Verdict.FASTER), tally.rate(Verdict.SLOWER)
        neither = Rate(tally.trials - faster.count - slower.count, tally.trials)
        rows.append(
            f"| {what} | {tally.most} | {_rate(faster)} | {_rate(slower)} | {neither.share:.1%} "
            f"| {tally.rounds:.1f} | {tally.discarded:.1f} |"
        )
    return rows


def _rate(rate: Rate) -> str:
    low, high = rate.interval()
    return f"{rate.share:.1%} [{low:.1%}, {high:.1%}]"


def _coverage_table(coverages: Sequence[Coverage], simulations: int) -> list[str]:
    *planned, (fewest, _) = looks = coverages[0].looks
    return [
        f"Simulated, not measured: share of {simulations:,} intervals that hold the true ratio, at each planned look, "
        "and when the budget allows the fewest rounds only.",
        "",
        f"| rounds | {' | '.join(f'{rounds}' for rounds, _ in planned)} | {fewest} only |",
        f"|---|{'---|' * len(looks)}",
        f"| promised | {' | '.join(f'{level:.2%}' for _, level in looks)} |",
        *(f"| {each.noise} | {' | '.join(f'{share:.2%}' for share in each.shares)} |" for each in coverages),
    ]
