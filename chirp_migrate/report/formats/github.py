"""Write findings as workflow commands of GitHub Actions, so that GitHub shows findings next to the code."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.plans.plan import Finding
from chirp_migrate.review.places import FindingPlaces
from chirp_migrate.rules import all_rules


def workflow_commands(check: CheckReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield a workflow command for each finding, and for each skipped file.

    Findings of rules that find bugs are warnings, and other findings are notices. Skipped files are errors. Paths are
    relative to the top of the git repository. For a notebook, the line number is the line in the JSON text at which the
    code of the cell begins.

    Args:
        check: the result of ``check``.
        verbose: whether to include remarks and suggestions. These findings do not change the exit code.

    Raises:
        UsageProblem: a file changed during the check.
    """
    places = FindingPlaces(check.plan)
    bugs = {rule.code for rule in all_rules() if rule.finds_bugs}
    for finding in (*check.work, *(check.others if verbose else ())):
        yield _command_for_finding("warning" if finding.rule in bugs else "notice", finding, places)
    for skipped in check.plan.skipped:
        place = {"file": places.name(skipped.path), "title": "not handled"}
        yield _format_command("error", place, f"{skipped.path}: {skipped.reason}")


def _command_for_finding(level: str, finding: Finding, places: FindingPlaces) -> str:
    region = places.region(finding)
    place = {"file": places.name(finding.path), "line": str(region.line)}
    if region.column is not None:
        place["col"] = str(region.column)
    message = finding.message if finding.cell is None else f"{finding.place}: {finding.message}"
    return _format_command(level, {**place, "title": f"{finding.rule} {finding.name}"}, message)


def _format_command(level: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{level} {listed}::{_escape_message(message)}"


def _escape_message(text: str) -> str:
    """Escape text in the same way as GitHub's own toolkit."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
