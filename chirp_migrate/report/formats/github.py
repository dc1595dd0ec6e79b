"""Write findings as workflow commands of GitHub Actions, so that GitHub shows findings next to the code.

This module converts the results of the SARIF document (see :mod:`.sarif`) to workflow commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.report.formats.sarif import sarif_of_check


def workflow_commands(check_result: CheckReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield a workflow command for each finding that counts as remaining work, and for each skipped file.

    Findings of rules that find bugs (see ``Rule.finds_bugs``) are warnings, and all other findings are notices. Skipped
    files are errors. Paths are relative to the top of the git repository. All findings in a notebook cell have the same
    line number: the line of the ``.ipynb`` file at which the code of the cell begins.

    Args:
        check_result: the result of ``check``.
        verbose: whether to include remarks, advice and suggestions. These findings do not change the exit code.

    Raises:
        UsageProblem: a file changed during the check.
    """
    (run,) = sarif_of_check(check_result)["runs"]
    rules = run["tool"]["driver"]["rules"]
    for findings in (check_result.work, check_result.remarks if verbose else ()):
        statuses = {finding.status.value for finding in findings}
        for result in run["results"]:
            if result["properties"]["status"] in statuses:
                title = f"{result['ruleId']} {rules[result['ruleIndex']]['name']}"
                yield _command("notice" if result["level"] == "note" else result["level"], title, result)
    for skipped in run["invocations"][0]["toolExecutionNotifications"]:
        if skipped["level"] == "error":
            yield _command("error", "not handled", skipped)


def _command(level: str, title: str, result: Mapping[str, Any]) -> str:
    """Return the workflow command for a result or a notification in a SARIF document."""
    place = result["locations"][0]["physicalLocation"]
    region = place.get("region", {})
    properties = {
        "file": unquote(place["artifactLocation"]["uri"], errors="surrogateescape"),
        "line": region.get("startLine"),
        "col": region.get("startColumn"),
        "title": title,
    }
    listed = ",".join(f"{key}={_escape_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{level} {listed}::{_escape_message(result['message']['text'])}"


def _escape_message(text: str) -> str:
    """Escape the message of a workflow command in the same way as GitHub's own toolkit."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
