"""Write findings as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), with the rewrites as fixes.

The document contains no time and no data of the machine, so the same code always leads to the same bytes. Paths are
relative to the top of the git repository (see :func:`~chirp_migrate.review.places.base_of_report_paths`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from chirp_migrate import __version__
from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.plans.plan import Finding, FindingStatus, SkippedFile, sha256
from chirp_migrate.plans.plan_document import ReplacementEntry
from chirp_migrate.review.fixes import line_replacements_by_hunk
from chirp_migrate.review.places import FileRegion, FindingPlaces
from chirp_migrate.rules import Rule
from chirp_migrate.syntax.import_style import ImportStyle

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"
#: Name of the fingerprint of a finding, with the version of the method that computes the fingerprint.
_FINGERPRINT = "ruleAndLine/v1"

_Json = dict[str, Any]


def sarif(check: CheckReport) -> _Json:
    """Return the SARIF document of all findings, without findings in the status ``FINE`` or ``UNCHANGED``.

    Findings of rules that find bugs have the level ``warning``, and other findings have the level ``note``. Skipped
    files are notifications with the level ``error``.

    Raises:
        UsageProblem: a file changed during the check.
    """
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_Run(check).to_json()]}


class _Run:
    def __init__(self, check: CheckReport) -> None:
        self._check = check
        self._places = FindingPlaces(check.plan)
        self._rules = check.settings.rules
        self._findings = [
            finding
            for finding in check.plan.findings
            if finding.status not in (FindingStatus.FINE, FindingStatus.UNCHANGED)
        ]
        self._numbers = {path: n for n, path in enumerate(dict.fromkeys(finding.path for finding in self._findings))}

    def to_json(self) -> _Json:
        return {
            "tool": {"driver": {"name": "chirp-migrate", "version": __version__, "rules": [*map(_rule, self._rules)]}},
            "invocations": [self._invocation()],
            "columnKind": "unicodeCodePoints",
            "newlineSequences": ["\r\n", "\n", "\r"],
            "originalUriBaseIds": {_BASE: {"description": _message("The top of the repository.")}},
            "artifacts": [self._artifact(path) for path in self._numbers],
            "results": self._results(),
        }

    def _invocation(self) -> _Json:
        plan = self._check.plan
        notes = [{"level": "note", "message": _message(note)} for note in plan.notes]
        return {
            "executionSuccessful": True,
            "exitCode": int(self._check.exit_code),
            "toolExecutionNotifications": [*map(self._skipped_file, plan.skipped), *notes],
        }

    def _skipped_file(self, one: SkippedFile) -> _Json:
        place = {"physicalLocation": {"artifactLocation": self._location(one.path)}}
        return {"level": "error", "message": _message(f"Not handled: {one.reason}"), "locations": [place]}

    def _artifact(self, path: str) -> _Json:
        file = self._places.file(path)
        encoding = {} if file.encoding is None else {"encoding": file.encoding}
        return {
            "location": self._location(path),
            "length": len(file.data),
            "hashes": {"sha-256": sha256(file.data)},
            **encoding,
        }

    def _location(self, path: str) -> _Json:
        uri = quote(self._places.name(path).encode("utf-8", "surrogateescape"))
        return {"uri": uri, "uriBaseId": _BASE}

    def _results(self) -> list[_Json]:
        index = {rule.code: number for number, rule in enumerate(self._rules)}
        fixes = self._fixes()
        seen: Counter[tuple[str, str, str]] = Counter()
        results = []
        for finding in self._findings:
            line = finding.path, finding.rule, self._places.line(finding)
            seen[line] += 1
            result = {
                "ruleId": finding.rule,
                "ruleIndex": index[finding.rule],
                "level": "warning" if self._rules[index[finding.rule]].finds_bugs else "note",
                "message": _message(finding.message if finding.cell is None else f"{finding.place}: {finding.message}"),
                "locations": [self._place(finding)],
                "partialFingerprints": {_FINGERPRINT: _fingerprint(*line[1:], seen[line])},
                "properties": {"status": finding.status.value, "safety": finding.safety.value, "why": finding.why},
            }
            if finding.status is FindingStatus.SUPPRESSED:
                by_settings = self._check.is_suppressed_by_settings(finding)
                result["suppressions"] = [{"kind": "external" if by_settings else "inSource"}]
            if finding.status is FindingStatus.REWRITE and (finding.path, finding.hunk) in fixes:
                result["fixes"] = [fixes[finding.path, finding.hunk]]
            results.append(result)
        return results

    def _place(self, finding: Finding) -> _Json:
        artifact = {**self._location(finding.path), "index": self._numbers[finding.path]}
        place: _Json = {
            "physicalLocation": {"artifactLocation": artifact, "region": _region(self._places.region(finding))}
        }
        if finding.cell is not None:
            place["logicalLocations"] = [{"name": f"cell {finding.cell}", "kind": "module"}]
        return place

    def _fixes(self) -> Mapping[tuple[str, int | None], _Json]:
        """Return a dictionary with every hunk: (path, number of the hunk) → fix."""
        members: dict[tuple[str, int | None], list[Finding]] = {}
        for finding in self._findings:
            members.setdefault((finding.path, finding.hunk), []).append(finding)
        found: dict[tuple[str, int | None], _Json] = {}
        style = ImportStyle(self._check.plan.root, self._check.plan.is_vendored)
        for file in self._check.plan.files:
            for number, replacements in line_replacements_by_hunk(file, style).items():
                change = {
                    "artifactLocation": self._location(file.path),
                    "replacements": [*map(_replacement, replacements)],
                }
                described = _message(_describe_fix(members[file.path, number]))
                found[file.path, number] = {"description": described, "artifactChanges": [change]}
        return found


def _rule(rule: Rule) -> _Json:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": _message(rule.summary),
        "fullDescription": _message(rule.reason),
        "help": _message(f"{rule.reason}\n\n`chirp-migrate explain {rule.code}` shows an example."),
        "defaultConfiguration": {"level": "warning" if rule.finds_bugs else "note"},
        "properties": {"safety": rule.safety.value},
    }


def _region(region: FileRegion) -> _Json:
    content = {"startLine": region.line}
    if region.column is not None:
        content["startColumn"] = region.column
    if region.last_line is not None:
        content["endLine"] = region.last_line
    return content


def _replacement(one: ReplacementEntry) -> _Json:
    deleted = dict(zip(("startLine", "startColumn", "endLine", "endColumn"), (*one.start, *one.end), strict=True))
    return {"deletedRegion": deleted, **({"insertedContent": {"text": one.text}} if one.text else {})}


def _describe_fix(findings: Sequence[Finding]) -> str:
    """Return a description of the fix of one hunk; ``findings`` are the findings that the hunk rewrites."""
    places = ", ".join(f"{finding.rule} ({finding.name}) in line {finding.line}" for finding in findings)
    return f"Rewrite {places}."


def _fingerprint(rule: str, line: str, occurrence: int) -> str:
    """Return a hash that stays the same if the line of code moves within its file.

    Args:
        rule: code of the rule.
        line: the line of code.
        occurrence: counter from 1 for findings of the same rule on equal lines of the file.
    """
    return hashlib.sha256("\0".join((rule, line, str(occurrence))).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _message(text: str) -> _Json:
    """Return a message object of SARIF. Bytes that are not valid UTF-8, as in some file names, are escaped."""
    return {"text": text.encode("utf-8", "backslashreplace").decode("utf-8")}
