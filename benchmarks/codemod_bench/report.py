"""Write the results as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from harness import Goal, goal_lines, made_by, quartiles, table

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
    return [*_survey_outcomes(surveyed), *_speed_outcomes(timed, everyone), *_growth_outcomes(grown)]


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


def _speed_outcomes(timed: Sequence[Timed], everyone: Sequence[Contender]) -> list[Goal]:
    found = []
    for one in timed:
        for contender in everyone:
            if contender.target is None:
                continue
            what = f"{one.tree}: time of {contender.name} / ours"
            wanted = f"≥ {contender.target:g}"
            if contender.name in one.seconds:
                low, median, high = quartiles(one.ratios(contender.name))
                measured = f"{median:.1f} ({low:.1f} to {high:.1f})"
                found.append(Goal(what, wanted, measured, median >= contender.target))
            else:
                found.append(Goal(what, wanted, "", None))
        if one.parsing is not None:
            share = one.parsing.rest / one.parsing.parsing
            what = f"{one.tree}: time of all other planning / time of parsing"
            found.append(Goal(what, "≤ 1", f"{share:.2f}", share <= 1))
    return found


def _growth_outcomes(grown: Sequence[Grown]) -> list[Goal]:
    if not grown:
        return []
    last = grown[-1]
    cost, memory = f"{last.share:.2f}", f"{last.whole.megabytes:.0f} MB"
    return [
        Goal(
            f"{last.files} files: cost of the whole tree / cost of its packages",
            f"≤ {SHARE:g}",
            cost,
            last.share <= SHARE,
        ),
        Goal(
            f"{last.files} files: memory of the largest process",
            f"≤ {MEGABYTES:g} MB",
            memory,
            last.whole.megabytes <= MEGABYTES,
        ),
        Goal(
            f"{last.files} files: differing findings, without rules for whole projects",
            "0",
            str(last.unexplained),
            last.unexplained == 0,
        ),
    ]


def totals(surveyed: Sequence[Surveyed]) -> tuple[Tally, Tally, Tally]:
    """Return the sums over all packages: direct calls without stars, direct calls with stars, and all others."""
    return (
        sum((one.account.plain for one in surveyed), Tally()),
        sum((one.account.starred for one in surveyed), Tally()),
        sum((one.account.others for one in surveyed), Tally()),
    )


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
    lines = ["# Migration of packages from PyPI", "", f"{made_by(settings)}."]
    if settings["reduced"]:
        lines += ["", "**A reduced run, whose results are not representative.**"]
    lines += ["", "## Goals", "", *goal_lines(reached)]
    if surveyed:
        lines += _survey(surveyed)
    for one in timed:
        lines += _speed(one)
    if grown:
        lines += _growth(grown)
    return "\n".join(lines) + "\n"


def _survey(surveyed: Sequence[Surveyed]) -> list[str]:
    header = [
        "package",
        "files",
        "rewritten",
        "calls",
        "migrated",
        "calls with `*`",
        "migrated",
        "other uses",
        "listed",
    ]
    rows = [
        [
            one.name,
            *map(str, (one.files, one.rewritten)),
            *_counts(one.account.plain, one.account.starred, one.account.others),
        ]
        for one in surveyed
    ]
    plain, starred, others = totals(surveyed)
    files, rewritten = sum(one.files for one in surveyed), sum(one.rewritten for one in surveyed)
    rows.append(["**all**", str(files), str(rewritten), *_counts(plain, starred, others)])
    lines = [
        "",
        "## Survey",
        "",
        "`chirp-migrate apply` migrated copies of source distributions with their tests. A separate program counted "
        "the sites in the original and in the migrated tree with `ast`, without code of the tool. *Calls* are calls "
        "of a name that can only be PyTorch's class. *Other uses* are subclasses, uses of the class as a value, and "
        "calls of a name that may be another class. The benchmark checks that every rewritten file compiles, that "
        "pyflakes finds no new undefined names, that no definition hides another definition, and that no comment is "
        "lost. Every changed line must belong to a finding, to an import, or to a statement that was removed as a "
        "whole. A second run must change nothing, and rollback must restore every byte. Every site must have a "
        "finding, and the findings, the ledger and both counts must agree.",
        "",
        *table(header, rows),
        "",
        "### Reasons for sites that are not rewritten",
        "",
    ]
    reasons: Counter[str] = Counter()
    for one in surveyed:
        reasons.update(one.account.reasons)
    lines += table(["reason", "sites"], [[reason, str(number)] for reason, number in reasons.most_common()])
    rules: dict[str, Counter[str]] = {}
    for one in surveyed:
        for rule, counts in one.rules.items():
            rules.setdefault(rule, Counter()).update(counts)
    statuses = sorted({status for found in rules.values() for status in found})
    counts_of = [[rule, *(rules[rule][status] for status in statuses)] for rule in sorted(rules)]
    lines += ["", "### Findings by rule", "", *table(["rule", *statuses], counts_of), "", "### Problems", ""]
    problems = [
        f"* {one.name}: {kind}: {place}"
        for one in surveyed
        for kind, places in one.problems.items()
        for place in places
    ]
    lines += problems or ["None."]
    failures = [f"* {one.name}: {failure}" for one in surveyed for failure in one.failures]
    untidy = sum(len(one.checks.untidy) for one in surveyed)
    lines += ["", "### Files that could not be processed", "", *(failures or ["None."])]
    lines += ["", f"Imports and names that pyflakes reports as unused or redefined only after the migration: {untidy}."]
    return lines


def _counts(plain: Tally, starred: Tally, others: Tally) -> list[str]:
    calls = [cell for tally in (plain, starred) for cell in (str(tally.found), _share(tally))]
    return [*calls, str(others.found), str(others.listed)]


def _share(tally: Tally) -> str:
    return "" if tally.share is None else f"{tally.migrated} ({tally.share:.1%})"


def _speed(timed: Timed) -> list[str]:
    rounds = len(timed.seconds[OURS])
    lines = [
        "",
        f"## Speed: {timed.tree}",
        "",
        f"The tree has {timed.files} Python files. Each tool may use {timed.jobs} processes. The times are wall times "
        f"of whole commands with their start. In each of {rounds} rounds, every tool runs once, in a changing order. "
        "The table has medians with quartiles in brackets. A ratio is computed for each round.",
        "",
    ]
    rows = []
    for name in sorted(timed.seconds, key=lambda one: float(np.median(timed.seconds[one]))):
        low, median, high = quartiles(np.array(timed.seconds[name]))
        least, middle, most = quartiles(timed.ratios(name))
        ratio = "" if name == OURS else f"{middle:.2f} ({least:.2f} to {most:.2f})"
        rows.append([name, f"{median:.2f} ({low:.2f} to {high:.2f})", ratio])
    lines += table(["command", "seconds", "time / ours"], rows)
    if (parsing := timed.parsing) is not None:
        lines += [
            "",
            f"LibCST parses {parsing.texts} texts, including rewritten texts. In one process, parsing takes "
            f"{parsing.parsing:.2f} s of CPU time, and all other planning takes {parsing.rest:.2f} s.",
        ]
    lines += [f"\nNot run: {name}: {problem}" for name, problem in timed.failed.items()]
    return lines


def _growth(grown: Sequence[Grown]) -> list[str]:
    rows = [
        [
            *map(str, (one.files, one.packages)),
            f"{one.whole.seconds:.1f}",
            f"{1000 * one.whole.seconds / one.files:.1f}",
            f"{one.parts:.1f}",
            f"{one.share:.2f}",
            f"{one.whole.megabytes:.0f}",
            ", ".join(f"{count} of {rule}" for rule, count in one.unshared.items()) or "none",
        ]
        for one in grown
    ]
    header = ["files", "packages", "seconds", "ms per file", "seconds, single packages", "ratio", "MB, largest process"]
    header += ["differing findings"]
    return [
        "",
        "## Growth",
        "",
        "A tree is a folder with several packages of the survey. `chirp-migrate apply --tests --diff --json FILE` "
        "plans the whole tree, and then each package alone. The times are the CPU times of all processes of a "
        "command with its start, which counts once for the single packages. The findings are compared by file and "
        f"rule. Only rules that read the whole project ({', '.join(WHOLE_PROJECT)}) may have other findings in a "
        "larger tree.",
        "",
        *table(header, rows),
    ]
