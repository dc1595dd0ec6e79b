"""Decide which findings of a plan count as remaining work for ``check``, and choose the exit code of ``check``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chirp_migrate.engine.settings import Settings
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.plans.plan import Finding, FindingStatus, Plan
from chirp_migrate.rules import all_rules

#: Status of the findings that ``apply`` reports but does not rewrite. With ``--strict``, these findings count as work.
_OPEN = frozenset({FindingStatus.OPT_IN, FindingStatus.REPORT, FindingStatus.REFUSED})


@dataclass(frozen=True)
class CheckReport:
    """The result of ``check``: the findings that count as remaining work, and all other findings.

    Attributes:
        plan: the plan of what ``apply`` would rewrite, from :func:`~chirp_migrate.engine.plan_tree.plan_tree`.
        settings: the settings of the plan.
        strict: whether the remaining work includes remarks, advice and suggestions.
    """

    plan: Plan
    settings: Settings
    strict: bool = False

    @property
    def work(self) -> tuple[Finding, ...]:
        """Return the findings that count as remaining work. If there is such a finding, ``check`` exits with 1."""
        return self._with_status({FindingStatus.REWRITE, *_OPEN} if self.strict else {FindingStatus.REWRITE})

    @property
    def remarks(self) -> tuple[Finding, ...]:
        """Return the remarks, advice and suggestions that do not change the exit code; none if ``strict`` is set."""
        return () if self.strict else self._with_status(_OPEN)

    @property
    def fork_only(self) -> tuple[Finding, ...]:
        """Return the :attr:`remarks` on source code that makes workers fail with start methods other than ``fork``."""
        codes = {rule.code for rule in all_rules() if rule.stops_workers}
        return tuple(
            finding for finding in self.remarks if finding.rule in codes and finding.status is FindingStatus.REPORT
        )

    @property
    def suppressed(self) -> tuple[Finding, ...]:
        """Return the findings that a comment or a setting suppresses. Such findings never count as work."""
        return self._with_status({FindingStatus.SUPPRESSED})

    @property
    def unchanged(self) -> tuple[Finding, ...]:
        """Return the findings that ``apply`` does not rewrite, because the rewrite has no gain.

        Such findings are loaders, and objects that loaders use. These findings never count as work.
        """
        return self._with_status({FindingStatus.UNCHANGED})

    @property
    def exit_code(self) -> ExitCode:
        """Return ``WORK_REMAINS`` if a finding counts as work or the plan skipped a file, else ``OK``."""
        return ExitCode.WORK_REMAINS if self.work or self.plan.skipped else ExitCode.OK

    def is_suppressed_by_settings(self, finding: Finding) -> bool:
        """Return whether the setting ``per-file-ignores`` suppresses a finding.

        Comments such as ``# chirp: ignore[CODE]`` do not change the result.
        """
        return finding.rule in self.settings.ignored_in(finding.path)

    def _with_status(self, statuses: Collection[FindingStatus]) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.plan.findings if finding.status in statuses)
