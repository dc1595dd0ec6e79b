"""``chirp-migrate rules``."""

from __future__ import annotations

import click

from chirp_migrate import __version__
from chirp_migrate.cli.options import CommandWithOptionGroups, output_options
from chirp_migrate.console.output import Output
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import SCHEMA
from chirp_migrate.rules import Rule, all_rules


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {ExitCode.OK: "listed"}, "chirp-migrate rules", "chirp-migrate rules --json - | jq '.rules[].code'"
    ),
)
@output_options("the rules", "Print only codes and names.", "Also print why each rule exists.")
def rules(output: Output) -> None:
    """List the rules with code, name, safety and purpose.

    `chirp-migrate explain CODE` shows one rule in full.
    """
    content = [rule_as_json(rule) for rule in all_rules()]
    output.write({"schema": SCHEMA, "tool": f"chirp-migrate {__version__}", "rules": content})
    if output.json_is_printed:
        return
    screen = output.screen()
    for rule in all_rules():
        screen.item(rule.code, f"{rule.name}, {rule.safety.value}", indent=0, style="cyan")
        if not output.quiet:
            screen.text(rule.summary, 8)
        if output.verbose:
            screen.text(rule.reason, 8, "dim")


def rule_as_json(rule: Rule) -> dict[str, str]:
    """Return the code, name, safety, summary and reason of a rule, for JSON documents."""
    fields = {"code": rule.code, "name": rule.name, "safety": rule.safety.value}
    return {**fields, "summary": rule.summary, "reason": rule.reason}
