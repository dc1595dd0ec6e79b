"""Compare the findings that the tool reports for a folder with an independent count of loaders."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .census import Census, Site

Finding = Mapping[str, Any]

#: Code of the rule that rewrites the calls that build loaders.
LOADER_RULE = "CHP001"


@dataclass
class Tally:
    """The numbers of sites of a kind, by outcome. A site is code that names the class ``DataLoader``.

    Attributes:
        found: number of all sites.
        migrated: number of sites that the run rewrote.
        listed: number of sites that the run reported and did not rewrite.
        fine: number of sites that need no rewrite.
    """

    found: int = 0
    migrated: int = 0
    listed: int = 0
    fine: int = 0

    @property
    def share(self) -> float | None:
        """Return migrated / found sites; None if no sites were found."""
        return self.migrated / self.found if self.found else None

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.found + other.found,
            self.migrated + other.migrated,
            self.listed + other.listed,
            self.fine + other.fine,
        )


@dataclass
class Account:
    """The result for every site that the census found.

    Attributes:
        plain: direct calls without ``*`` and ``**``.
        starred: direct calls with ``*`` or ``**``.
        others: subclasses, uses as a value, and calls of a class that may be another class.
        reasons: reason why sites are not rewritten → number of sites.
        unaccounted: sites that the run does not report.
        disagreements: files in which the number of removed sites differs from the reported number of migrated sites.
        unknown: lines that the run rewrites or reports, although the census counts no site there.
    """

    plain: Tally = field(default_factory=Tally)
    starred: Tally = field(default_factory=Tally)
    others: Tally = field(default_factory=Tally)
    reasons: dict[str, int] = field(default_factory=dict)
    unaccounted: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def account_for_sites(
    before: Census, after: Census, findings: Iterable[Finding], ledger: Mapping[str, Any] | None
) -> Account:
    """Compare the counts before and after the migration with the findings and the ledger of the run.

    Args:
        before: the sites of the original tree.
        after: the sites of the migrated tree.
        findings: the findings of the run.
        ledger: the ledger of the run; None if the run has no ledger.
    """
    account = Account()
    loaders = [finding for finding in findings if finding["rule"] == LOADER_RULE]
    by_place: dict[tuple[str, int], list[Finding]] = defaultdict(list)
    for finding in loaders:
        by_place[finding["path"], finding["line"]].append(finding)
    reported: Counter[str] = Counter()
    for site in before.sites:
        at_line = by_place.get((site.path, site.line), [])
        own = next((one for one in at_line if one["column"] == site.column), at_line[0] if at_line else None)
        if own is not None:
            at_line.remove(own)
        _enter(account, site, own)
        if own is not None and own["status"] == "rewrite":
            reported[site.path] += 1
    for (path, line), left in by_place.items():
        account.unknown += [f"{path}:{line} ({one['status']})" for one in left if one["status"] != "fine"]
        reported[path] += sum(one["status"] == "rewrite" for one in left)
    _compare(account, before, after, reported)
    if ledger is not None:
        _check_ledger(account, len(loaders), ledger["sites"])
    return account


def _enter(account: Account, site: Site, finding: Finding | None) -> None:
    direct = site.kind == "call" and site.certain
    tally = (account.starred if site.starred else account.plain) if direct else account.others
    tally.found += 1
    if finding is None:
        account.unaccounted.append(f"{site.path}:{site.line} ({site.kind})")
    elif finding["status"] == "rewrite":
        tally.migrated += 1
    elif finding["status"] == "fine":
        tally.fine += 1
    else:
        tally.listed += 1
        why = reason(finding)
        account.reasons[why] = account.reasons.get(why, 0) + 1


def reason(finding: Finding) -> str:
    """Return the kind of reason of a finding: its short name, or its message without names and numbers."""
    if finding.get("why"):
        return str(finding["why"])
    message = str(finding["message"])
    message = re.sub(r"`[^`]*`|'[^']*'", "…", message)
    message = re.sub(r"\b[A-Za-z_]*[A-Z_][A-Za-z_]*\w*\b(?=.{0,3}(?: subclasses|\())", "…", message)
    return re.split(r"[;:,]", message)[0].strip()


def _compare(account: Account, before: Census, after: Census, reported: Counter[str]) -> None:
    """Compare the removed sites of each file with the sites that are reported as migrated."""
    was = Counter(site.path for site in before.sites)
    now = Counter(site.path for site in after.sites)
    for path in sorted(was.keys() | now.keys()):
        if was[path] - now[path] != reported[path]:
            account.disagreements.append(
                f"{path}: {was[path] - now[path]} sites removed, {reported[path]} reported as migrated"
            )


def _check_ledger(account: Account, findings: int, sites: Mapping[str, int]) -> None:
    """Check that the ledger adds up and covers every finding."""
    parts = {name: number for name, number in sites.items() if name != "found"}
    if sum(parts.values()) != sites["found"]:
        account.disagreements.append(f"the ledger does not add up: {sites['found']} found, {parts}")
    if sites["found"] != findings:
        account.disagreements.append(f"the ledger has {sites['found']} sites, but there are {findings} findings")
