"""Define texts that both the terminal output and the web page show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from chirp_migrate.console.text import pluralize, shorten_list
from chirp_migrate.plans.plan import Finding, FindingStatus, Gain, Safety
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.rules import all_rules

_T = TypeVar("_T")

#: Text for each reason for writing a file.
NOTES = {
    "rewrite": "rewritten",
    "ignore": "comments that suppress findings",
    "scaffold": "added",
    "dependency": "dependency",
    "vendor": "vendored",
}
#: Heading of each kind of change that is not a hunk.
HUNK_KINDS = {
    "follows": "Changes of imports, and removal of code that is unused after the changes above",
    "file": "The file as a whole",
    "unknown": "All changes of this file",
}
SAFETIES = {
    Safety.SAFE: "keeps samples, order and values, or the distribution of random augmentation; applied by default",
    Safety.BEHAVIOUR: "a suggestion that changes what training learns; only --unsafe applies it",
    Safety.ADVICE: "reported, never rewritten",
}
#: Text for each status of a finding on a loader.
_FATES = {
    FindingStatus.REWRITE: "migrated",
    FindingStatus.FINE: "already migrated",
    FindingStatus.UNCHANGED: "unchanged",
    FindingStatus.SUPPRESSED: "suppressed",
    FindingStatus.OPT_IN: "suggested",
    FindingStatus.REFUSED: "refused",
    FindingStatus.REPORT: "not rewritten",
}
_SUGGESTED = "Suggestions, not applied: these change training (--unsafe applies them)"
_REFUSED, _BUGS, _LEFT = "Refused in the review", "Likely bugs, which you should check", "Not rewritten"
ADVICE, SUPPRESSED = "Advice", "Suppressed by a comment or a setting"
UNCHANGED = "Unchanged, because nothing would be gained (--all-loaders rewrites them)"
_TITLES = {
    FindingStatus.OPT_IN: _SUGGESTED,
    FindingStatus.REFUSED: _REFUSED,
    FindingStatus.SUPPRESSED: SUPPRESSED,
    FindingStatus.UNCHANGED: UNCHANGED,
}


def finding_count_rows(counts: Mapping[FindingStatus, int]) -> list[tuple[FindingStatus, str, int]]:
    """Return (status, word that the reports print for the status, number of findings) for each status in ``counts``."""
    words = {**_FATES, FindingStatus.REWRITE: "rewritten", FindingStatus.FINE: "fine", FindingStatus.REPORT: "reported"}
    return [(status, word, counts[status]) for status, word in words.items() if counts.get(status)]


def loader_count_rows(ledger: LoaderLedger, *, planned: bool = False) -> list[tuple[FindingStatus, str, int]]:
    """Return (status, word that the reports print for the status, number of loaders) for each status of a loader.

    Args:
        ledger: the counts.
        planned: whether the plan is not applied yet. If True, the word is "to migrate" instead of "migrated".
    """
    words, sites = {**_FATES, FindingStatus.REWRITE: "to migrate"} if planned else _FATES, ledger.loader_sites
    return [(status, word, sites[status]) for status, word in words.items() if sites.get(status)]


def ledger_sentences(ledger: LoaderLedger, *, planned: bool = False, list_reference: str = "") -> Iterator[str]:
    """Yield sentences with the number of loaders for each outcome and reason, such as "3 loaders found: all migrated."

    Args:
        ledger: the counts.
        planned: whether the plan is not applied yet. If True, the word is "to migrate" instead of "migrated".
        list_reference: text that refers to the list of loaders that are not rewritten, such as " (listed after the
            diff)".
    """
    if ledger.counting:
        parts = loader_count_rows(ledger, planned=planned)
        fates = [f"{'all' if len(parts) == 1 and ledger.found > 1 else number} {word}" for _, word, number in parts]
        where = list_reference if ledger.loader_sites.get(FindingStatus.REPORT) else ""
        found = f"{pluralize(ledger.found, 'loader')} found"
        yield f"{f'{found}: ' if fates else found}{', '.join(fates)}{where}."
        reasons = ledger.loader_reasons
        if set(reasons) - {"other"}:
            yield f"Loaders not rewritten: {', '.join(f'{number} {why}' for why, number in reasons.items())}."
        if ledger.values:
            places = f"{pluralize(ledger.values, 'place')}, which {'is' if ledger.values == 1 else 'are'} not rewritten"
            yield f"DataLoader is used as a value in {places}{'' if where else list_reference}."
    if ledger.unread:
        were = "is" if ledger.unread == 1 else "are"
        yield f"{pluralize(ledger.unread, 'file')} could not be handled and {were} not counted."


def group_unrewritten_findings(items: Iterable[_T], finding_of: Callable[[_T], Finding]) -> list[tuple[str, list[_T]]]:
    """Group the findings that were not rewritten under titles of the report, such as "Advice".

    The result has a pair (title, findings) for each title with findings, the most important title first.
    """
    rules = {rule.code: rule for rule in all_rules()}

    def title(finding: Finding) -> str:
        rule = rules.get(finding.rule)
        if finding.status is not FindingStatus.REPORT or rule is None:
            return _TITLES.get(finding.status, _LEFT)
        return _BUGS if rule.finds_bugs else ADVICE if rule.safety is Safety.ADVICE else _LEFT

    by_title: dict[str, list[_T]] = {
        name: [] for name in (_SUGGESTED, _REFUSED, _BUGS, _LEFT, ADVICE, UNCHANGED, SUPPRESSED)
    }
    for one in items:
        if finding_of(one).status not in (FindingStatus.REWRITE, FindingStatus.FINE):
            by_title[title(finding_of(one))].append(one)
    return [(name, of) for name, of in by_title.items() if of]


def unchanged_loader_sentences(findings: Iterable[Finding], max_listed: int | None = 4) -> Iterator[str]:
    """Yield a sentence for each reason why a rewrite of loaders would gain nothing.

    Args:
        findings: the findings of a plan.
        max_listed: largest number of files that a sentence lists, and also largest number of places (``path:line``);
            None for no limit.
    """
    counting = {rule.code for rule in all_rules() if rule.counts_sites}
    by_reason: dict[str, list[tuple[str, Gain]]] = {}
    for one in findings:
        if one.status is FindingStatus.UNCHANGED and one.rule in counting and one.gain is not None:
            by_reason.setdefault(one.gain.why, []).append((one.path, one.gain))
    for why, found in by_reason.items():
        paths = list(dict.fromkeys(path for path, _ in found))
        places = list(dict.fromkeys(f"{gain.path}:{gain.line}" for _, gain in found if gain.path))
        at = f" ({shorten_list(places, max_listed)})" if places else ""
        advice = "; chirp-migrate tune finds the best number of workers" if found[0][1].workers_may_help else ""
        yield (
            f"{shorten_list(paths, max_listed)}: {pluralize(len(found), 'loader')} unchanged: {why}{at}, "
            f"so the factory has nothing to speed up{advice}."
        )
