"""Write the results as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from harness import Goal, page, quartiles

from .account import Tally
from .growth import MEGABYTES, SHARE, WHOLE_PROJECT, Grown
from .speed import OURS, Contender, Timed
from .survey import Surveyed

Settings = dict[str, Any]

#: Smallest shares of migrated direct calls: without ``*`` and ``**``, and with them.
PLAIN_GOAL, STARRED_GOAL = 0.85, 0.60


def outcomes(
    surveyed: Sequence[Surveyed], timed: Sequence[Timed], grown: Sequence[Grown], everyone: Sequence[Contender]
) -> list[Goal]:
    """Return all goals."""
    return [*_survey_outcomes(surveyed), *_speed_outcomes(timed, everyone), *_growth_outcomes(grown[-1:])]


def _survey_outcomes(surveyed: Sequence[Surveyed]) -> list[Goal]:
    if not surveyed:
        return []
    plain, starred, _ = totals(surveyed)
    problems = Counter(kind for one in surveyed for kind, places in one.problems.items() for _ in places)
    found = ", ".join(f"{number} x {kind}" for kind, number in problems.most_common()) or "none"
    return [
        Goal("packages migrated", "at least 10", str(len(surveyed)), len(surveyed) >= 10),
        Goal("migrated direct calls without `*` and `**`", "≥ 85 %", _share(plain), _reaches(plain, PLAIN_GOAL)),
        Goal("migrated direct calls with `*` or `**`", "≥ 60 %", _share(starred), _reaches(starred, STARRED_GOAL)),
        Goal("problems in migrated trees", "none", found, not problems),
    ]


def _reaches(tally: Tally, goal: float) -> bool | None:
    return None if tally.share is None else tally.share >= goal


def _speed_outcomes(timed: Sequence[Timed], everyone: Sequence[Contender]) -> Iterator[Goal]:
    for one in timed:
        for contender in (tool for tool in everyone if tool.target is not None):
            what, wanted = f"{one.tree}: time of {contender.name} / ours", f"≥ {contender.target:g}"
            if contender.name in one.seconds:
                low, median, high = quartiles(one.ratios(contender.name))
                yield Goal(what, wanted, f"{median:.1f} ({low:.1f} to {high:.1f})", median >= contender.target)
            else:
                yield Goal(what, wanted, "", None)
        if one.parsing is not None:
            share = one.parsing.rest / one.parsing.parsing
            yield Goal(f"{one.tree}: time of all other planning / time of parsing", "≤ 1", f"{share:.2f}", share <= 1)


def _growth_outcomes(last: Sequence[Grown]) -> Iterator[Goal]:
    for one in last:
        size, memory = f"{one.files} files", one.whole.megabytes
        what = f"{size}: cost of the whole tree / cost of its packages"
        yield Goal(what, f"≤ {SHARE:g}", f"{one.share:.2f}", one.share <= SHARE)
        what = f"{size}: memory of the largest process"
        yield Goal(what, f"≤ {MEGABYTES:g} MB", f"{memory:.0f} MB", memory <= MEGABYTES)
        what = f"{size}: differing findings, without rules for whole projects"
        yield Goal(what, "0", str(one.unexplained), one.unexplained == 0)


def totals(surveyed: Sequence[Surveyed]) -> tuple[Tally, Tally, Tally]:
    """Return the sums over all packages: direct calls without stars, direct calls with stars, and all others."""
    plain, starred, others = zip(
        *((one.account.plain, one.account.starred, one.account.others) for one in surveyed), strict=True
    )
    return sum(plain, Tally()), sum(starred, Tally()), sum(others, Tally())


def as_data(
    surveyed: Sequence[Surveyed],
    timed: Sequence[Timed],
    grown: Sequence[Grown],
    reached: Sequence[Goal],
    settings: Settings,
) -> dict[str, Any]:
    """Return all results with their raw values."""
    return {
        "schema": 1,
        **settings,
        "goals": [asdict(one) for one in reached],
        "survey": [{**asdict(one), "problems": one.problems} for one in surveyed],
        "speed": [asdict(one) for one in timed],
        "growth": [asdict(one) for one in grown],
    }


def as_markdown(
    surveyed: Sequence[Surveyed],
    timed: Sequence[Timed],
    grown: Sequence[Grown],
    reached: Sequence[Goal],
    settings: Settings,
) -> str:
    """Return the report: goals first, then the survey, the times and the curve."""
    rules: dict[str, Counter[str]] = {}
    for one in surveyed:
        for rule, counts in one.rules.items():
            rules.setdefault(rule, Counter()).update(counts)
    statuses = sorted({status for found in rules.values() for status in found})
    return page(
        "codemod",
        settings=settings,
        goals=reached,
        surveyed=surveyed,
        rows=_survey_rows(surveyed) if surveyed else [],
        reasons=sum((Counter(one.account.reasons) for one in surveyed), Counter()),
        statuses=statuses,
        findings=[[rule, *(rules[rule][status] for status in statuses)] for rule in sorted(rules)],
        timed=[(one, _times(one)) for one in timed],
        ours=OURS,
        grown=grown,
        growth=[_growth_row(one) for one in grown],
        whole_project=WHOLE_PROJECT,
    )


def _survey_rows(surveyed: Sequence[Surveyed]) -> list[list[object]]:
    def row(name: str, files: int, rewritten: int, *tallies: Tally) -> list[object]:
        *direct, others = tallies
        calls = [cell for tally in direct for cell in (tally.found, _share(tally))]
        return [name, files, rewritten, *calls, others.found, others.listed]

    accounts = [(one, one.account) for one in surveyed]
    rows = [row(one.name, one.files, one.rewritten, a.plain, a.starred, a.others) for one, a in accounts]
    files, rewritten = sum(one.files for one in surveyed), sum(one.rewritten for one in surveyed)
    return [*rows, row("**all**", files, rewritten, *totals(surveyed))]


def _share(tally: Tally) -> str:
    return "" if tally.share is None else f"{tally.migrated} ({tally.share:.1%})"


def _times(timed: Timed) -> list[list[str]]:
    rows = []
    for name in sorted(timed.seconds, key=lambda one: float(np.median(timed.seconds[one]))):
        low, median, high = quartiles(timed.seconds[name])
        least, middle, most = quartiles(timed.ratios(name))
        ratio = "" if name == OURS else f"{middle:.2f} ({least:.2f} to {most:.2f})"
        rows.append([name, f"{median:.2f} ({low:.2f} to {high:.2f})", ratio])
    return rows


def _growth_row(one: Grown) -> list[object]:
    seconds = (f"{one.whole.seconds:.1f}", f"{1000 * one.whole.seconds / one.files:.1f}", f"{one.parts:.1f}")
    differing = ", ".join(f"{count} of {rule}" for rule, count in one.unshared.items()) or "none"
    return [one.files, one.packages, *seconds, f"{one.share:.2f}", f"{one.whole.megabytes:.0f}", differing]
