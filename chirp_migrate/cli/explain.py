"""``chirp-migrate explain CODE``: print everything about one rule, with the rewrite of its example."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import click

from chirp_migrate import __version__
from chirp_migrate.cli.options import CommandWithOptionGroups, complete_rule_codes, output_options
from chirp_migrate.cli.rules import rule_as_json
from chirp_migrate.console.output import Output
from chirp_migrate.console.screen import Screen
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import SCHEMA, Finding, FindingStatus, Safety
from chirp_migrate.report.wording import SAFETIES
from chirp_migrate.rules import Rule, all_rules, codes_matching, unknown_rule_message
from chirp_migrate.syntax.project import Project


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {ExitCode.OK: "explained", ExitCode.USAGE: "there is no such rule"},
        "chirp-migrate explain CHP001",
        "chirp-migrate explain lambda-in-loader | less",
    ),
)
@click.argument("code", shell_complete=complete_rule_codes)
@output_options(
    "the explanation", "Print no example.", "Print every message of the examples, not just one for each reason."
)
def explain(code: str, output: Output) -> None:
    """Explain one rule: its reason and safety, the code that it rewrites, and the code that it only reports.

    CODE is the code of the rule, such as CHP001, or its name.
    """
    rule = _find_rule(code)
    examples = _example_files(rule.code)
    reports = list(_findings_in_examples(rule, examples, each=output.verbose))
    shown = [] if output.quiet else reports
    before, after = examples.get("before.py", ""), examples.get("after.py", examples.get("before.py", ""))
    content = {
        "schema": SCHEMA,
        "tool": f"chirp-migrate {__version__}",
        **rule_as_json(rule),
        "requires": rule.requires,
        "before": before,
        "after": after,
        "reports": [
            {"line": finding.line, "source": source, "message": finding.message, "why": finding.why}
            for finding, source in reports
        ],
    }
    output.write(content)
    if output.json_is_printed:
        return
    screen = output.screen()
    _show_rule(rule, shown, screen)
    diff = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "before.py", "after.py", lineterm=""))
    if diff and not output.quiet:
        screen.line()
    for line in () if output.quiet else diff:
        screen.diff_line(line)


def _show_rule(rule: Rule, reports: Sequence[tuple[Finding, str]], screen: Screen) -> None:
    """Print everything about the rule except its example."""
    screen.item(rule.code, rule.name, indent=0, style="bold cyan")
    screen.text(rule.summary)
    screen.line()
    screen.text(rule.reason)
    for paragraph in re.split(r"\n(?=- )|\n\n", rule.requires) if rule.requires else ():
        if not paragraph.startswith("- "):
            screen.line()
        screen.text(paragraph, hang=2 * paragraph.startswith("- "))
    screen.line()
    screen.text(f"Safety: {rule.safety.value}: {SAFETIES[rule.safety]}.", hang=2)
    if reports:
        screen.heading("Reported code" if rule.safety is Safety.ADVICE else "Reported code that is not rewritten")
    for finding, source in reports:
        screen.text(source, 2, "dim")
        screen.text(finding.message, 6)
    screen.line()
    screen.text(f"To suppress a finding, add a comment: # chirp: ignore[{rule.code}]")


def _find_rule(selector: str) -> Rule:
    codes = codes_matching(selector)
    if not codes:
        raise UsageProblem(f"{unknown_rule_message(selector)}.")
    if len(codes) > 1:
        raise UsageProblem(f"{selector} matches {', '.join(sorted(codes))}: choose one of them.")
    return next(rule for rule in all_rules() if rule.code in codes)


def _example_files(code: str) -> dict[str, str]:
    """Return the text of each example file of a rule, by file name.

    The files are in the installed package or, in a checkout, in fixtures/rules.
    """
    repository = Path(__file__).resolve().parents[2] / "fixtures" / "rules"
    for folder in (files("chirp_migrate").joinpath("examples"), repository):
        if folder.joinpath(code).is_dir():
            found = sorted(folder.joinpath(code).iterdir(), key=lambda file: file.name)
            return {file.name: file.read_text(encoding="utf-8") for file in found if file.name.endswith(".py")}
    return {}


def _findings_in_examples(rule: Rule, examples: dict[str, str], *, each: bool) -> Iterator[tuple[Finding, str]]:
    """Yield (finding, line of code) for the findings that the rule reports in its examples and does not rewrite.

    Args:
        rule: the rule.
        examples: the text of each example file, by name.
        each: True to yield all these findings; False to yield only one finding for each reason.
    """
    texts = {f"example/{name}": text for name, text in examples.items()}
    known_reasons = set()
    for path, text in texts.items():
        if path == "example/after.py":
            continue
        _, findings = rewrite_text(path, text, Project(texts), unsafe=True, rules=[rule])
        for finding in findings:
            reason = finding.why or finding.message
            if finding.status is FindingStatus.REPORT and (each or reason not in known_reasons):
                known_reasons.add(reason)
                yield finding, text.splitlines()[finding.line - 1].strip()
