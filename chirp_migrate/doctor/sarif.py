"""Write the problems of ``doctor`` as SARIF 2.1.0, for code scanning and editors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chirp_migrate import __version__
from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.doctor.doctor_report import DoctorReport, Problem
from chirp_migrate.review.places import base_of_report_paths

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"


def sarif_bytes(report: DoctorReport, root: Path) -> bytes:
    """Return the SARIF document, with paths relative to the top of the git repository that contains ``root``."""
    prefix = root.relative_to(base_of_report_paths(root))
    checks = list(dict.fromkeys(problem.check for problem in report.problems))
    run = {
        "tool": {
            "driver": {"name": "chirp-migrate doctor", "version": __version__, "rules": [{"id": one} for one in checks]}
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, prefix, checks) for problem in report.problems],
    }
    return to_json_bytes({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(problem: Problem, prefix: Path, checks: list[str]) -> dict[str, Any]:
    text = f"{problem.message} {problem.evidence} {problem.fix}"
    result: dict[str, Any] = {
        "ruleId": problem.check,
        "ruleIndex": checks.index(problem.check),
        "level": "warning",
        "message": {"text": text},
        "partialFingerprints": {"checkAndMessage/v1": _fingerprint(problem)},
    }
    if problem.path:
        uri = quote((prefix / problem.path).as_posix())
        place = {"artifactLocation": {"uri": uri, "uriBaseId": _BASE}, "region": {"startLine": problem.line}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _fingerprint(problem: Problem) -> str:
    return hashlib.sha256("\0".join((problem.check, problem.path, problem.message)).encode()).hexdigest()[:32]
