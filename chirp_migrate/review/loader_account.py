"""Count the loaders and findings of ``apply`` or ``check`` by outcome. These counts are the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from chirp_migrate.plans.plan import NOT_WRITTEN, FindingStatus, Plan
from chirp_migrate.plans.plan_document import LoaderCounts
from chirp_migrate.rules import all_rules

#: Short reason in the ledger for a finding that is not rewritten and has an empty ``why``.
_OTHER = "other"
#: Short reason of a finding on code that stores or passes the class `DataLoader` and does not build a loader.
_VALUE = "used-as-value"


@dataclass(frozen=True)
class LoaderLedger:
    """The numbers of loaders and findings of a run of ``apply`` or ``check``, by outcome.

    Attributes:
        sites: dictionary, status → number of findings of CHP001. This rule has one finding for each loader, and for
            each place that only stores or passes the class ``DataLoader``.
        reasons: dictionary, short reason → number of findings in ``sites`` that ``apply`` does not rewrite for this
            reason.
        rules: dictionary, code of a rule → dictionary, status → number of findings. The findings in ``sites`` are
            included.
        unread: number of files that could not be processed. The ledger contains no loaders or findings of these files.
        counting: whether the rules of the run include CHP001. If False, the ledger contains no loaders, and reports
            print no number of loaders.
    """

    sites: Mapping[FindingStatus, int]
    reasons: Mapping[str, int]
    rules: Mapping[str, Mapping[FindingStatus, int]]
    unread: int
    counting: bool

    @classmethod
    def of(cls, plan: Plan) -> LoaderLedger:
        """Count the loaders and findings of a plan by outcome.

        Args:
            plan: the plan, with its findings, the files that could not be processed, and the rules that ran.
        """
        codes = plan.options.rules
        counting = {rule.code for rule in all_rules() if rule.counts_sites and (codes is None or rule.code in codes)}
        sites: Counter[FindingStatus] = Counter()
        reasons: Counter[str] = Counter()
        rules: dict[str, Counter[FindingStatus]] = {}
        for finding in plan.findings:
            status, why = finding.status, finding.why or _OTHER
            rules.setdefault(finding.rule, Counter())[status] += 1
            if finding.rule in counting:
                sites[status] += 1
                reasons.update([why] if status is FindingStatus.REPORT else [])
        read = {one.path for one in plan.findings if one.why == NOT_WRITTEN}
        unread = sum(one.path not in read for one in plan.skipped)
        return cls(sites, dict(reasons.most_common()), dict(sorted(rules.items())), unread, bool(counting))

    @property
    def found(self) -> int:
        """Return the number of all loaders. Code that only stores or passes the class ``DataLoader`` does not count."""
        return sum(self.sites.values()) - self.values

    @property
    def values(self) -> int:
        """Return the number of places that only store or pass the class ``DataLoader``.

        No rule rewrites these places.
        """
        return self.reasons.get(_VALUE, 0)

    @property
    def loader_sites(self) -> Mapping[FindingStatus, int]:
        """Return a dictionary: status → number of loaders.

        Code that only stores or passes the class ``DataLoader`` does not count.
        """
        return {
            status: number - self.values * (status is FindingStatus.REPORT) for status, number in self.sites.items()
        }

    @property
    def loader_reasons(self) -> Mapping[str, int]:
        """Return a dictionary: short reason → number of loaders that ``apply`` does not rewrite for this reason."""
        return {why: number for why, number in self.reasons.items() if why != _VALUE}

    def to_counts(self) -> LoaderCounts:
        """Convert the numbers of loaders and findings to the form in which JSON documents contain these numbers."""
        return LoaderCounts(
            sites={"found": sum(self.sites.values()), **_by_name(self.sites)},
            listed_by_reason=dict(self.reasons),
            rules={code: _by_name(counts) for code, counts in self.rules.items()},
            files_not_handled=self.unread,
        )


def _by_name(counts: Mapping[FindingStatus, int]) -> dict[str, int]:
    names = {
        "migrated": FindingStatus.REWRITE,
        "fine": FindingStatus.FINE,
        "unchanged": FindingStatus.UNCHANGED,
        "suppressed": FindingStatus.SUPPRESSED,
        "refused": FindingStatus.REFUSED,
        "opt_in": FindingStatus.OPT_IN,
        "listed": FindingStatus.REPORT,
    }
    return {name: counts.get(status, 0) for name, status in names.items()}
