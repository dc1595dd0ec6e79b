"""Write findings of ``check`` and problems of ``doctor`` as SARIF 2.1.0, with the rewrites as fixes.

SARIF is the Static Analysis Results Interchange Format of OASIS. A document contains no time and no data about the
machine, so the document for the same code always has the same bytes. Paths are relative to the top of the git
repository (see :func:`~chirp_migrate.review.places.base_of_report_paths`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chirp_migrate import __version__
from chirp_migrate.doctor.doctor_report import DoctorReport, Problem
from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.plans.plan import Finding, FindingStatus, SkippedFile
from chirp_migrate.plans.plan_document import ReplacementEntry
from chirp_migrate.review.fixes import line_replacements_by_hunk
from chirp_migrate.review.places import FileRegion, FindingPlaces, base_of_report_paths
from chirp_migrate.rules import Rule
from chirp_migrate.syntax.import_sorting import ImportStyle

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"
#: Name of the fingerprint of a finding, with the version of the method that computes the fingerprint.
_FINGERPRINT = "ruleAndLine/v1"

_Json = dict[str, Any]


def sarif_of_check(check_result: CheckReport) -> _Json:
    """Return the SARIF document of all findings, except findings with the status ``FINE`` or ``UNCHANGED``.

    The excluded findings are correct code, and loaders for which the rewrite has no gain. Findings of rules that find
    bugs (see ``Rule.finds_bugs``) have the level ``warning``. All other findings have the level ``note``. Skipped files
    are notifications with the level ``error``.

    Raises:
        UsageProblem: a file changed during the check.
    """
    return _document(_Run(check_result).to_json())


def sarif_of_doctor(report: DoctorReport, root: Path) -> _Json:
    """Return the SARIF document of the problems that ``doctor`` found in the project at ``root``."""
    prefix = root.relative_to(base_of_report_paths(root))
    checks = list(dict.fromkeys(problem.check for problem in report.problems))
    return _document(
        {
            "tool": _tool("chirp-migrate doctor", [{"id": one} for one in checks]),
            "results": [_problem_result(problem, prefix, checks.index(problem.check)) for problem in report.problems],
        }
    )


def _document(run: _Json) -> _Json:
    run["columnKind"] = "unicodeCodePoints"
    run["newlineSequences"] = ["\r\n", "\n", "\r"]
    run["originalUriBaseIds"] = {_BASE: {"description": _message("The root folder of the repository.")}}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _tool(name: str, rules: Sequence[_Json]) -> _Json:
    return {"driver": {"name": name, "version": __version__, "rules": rules}}


def _problem_result(problem: Problem, prefix: Path, rule: int) -> _Json:
    result: _Json = {
        "ruleId": problem.check,
        "ruleIndex": rule,
        "level": "warning",
        "message": _message(f"{problem.message} {problem.evidence} {problem.fix}"),
        "partialFingerprints": {"checkAndMessage/v1": _fingerprint(problem.check, problem.path, problem.message)},
    }
    if problem.path:
        place = {
            "artifactLocation": _location((prefix / problem.path).as_posix()),
            "region": {"startLine": problem.line},
        }
        result["locations"] = [{"physicalLocation": place}]
    return result


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

    def to_json(self) -> _Json:
        notes = [{"level": "note", "message": _message(note)} for note in self._check.plan.notes]
        invocation = {
            "executionSuccessful": True,
            "exitCode": int(self._check.exit_code),
            "toolExecutionNotifications": [*map(self._skipped_file, self._check.plan.skipped), *notes],
        }
        rules = [*map(_rule, self._rules)]
        return {"tool": _tool("chirp-migrate", rules), "invocations": [invocation], "results": self._results()}

    def _skipped_file(self, one: SkippedFile) -> _Json:
        place = {"physicalLocation": {"artifactLocation": self._location(one.path)}}
        return {"level": "error", "message": _message(f"Not handled: {one.reason}"), "locations": [place]}

    def _location(self, path: str) -> _Json:
        return _location(self._places.name(path))

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
                "partialFingerprints": {_FINGERPRINT: _fingerprint(*line[1:], str(seen[line]))},
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
        region = _region(self._places.region(finding))
        place: _Json = {"physicalLocation": {"artifactLocation": self._location(finding.path), "region": region}}
        if finding.cell is not None:
            place["logicalLocations"] = [{"name": f"cell {finding.cell}", "kind": "module"}]
        return place

    def _fixes(self) -> Mapping[tuple[str, int | None], _Json]:
        """Return a dictionary that maps (path of the file, number of the hunk) to the SARIF fix of this hunk."""
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


def _location(path: str) -> _Json:
    """Return the SARIF location of the file ``path``, which is relative to the top of the repository."""
    return {"uri": quote(path.encode("utf-8", "surrogateescape")), "uriBaseId": _BASE}


def _fingerprint(*parts: str) -> str:
    """Return a hash of ``parts``, by which SARIF viewers recognise a finding in a later document.

    The parts must not depend on the line number, so that the hash stays the same if code above the finding changes. For
    a finding, the parts are the rule, the line of code, and a number that distinguishes findings on equal lines.
    """
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _message(text: str) -> _Json:
    """Return a message object of SARIF. Bytes that are not valid UTF-8, as in some file names, are escaped."""
    return {"text": text.encode("utf-8", "backslashreplace").decode("utf-8")}
