"""``chirp-migrate rules``."""

from __future__ import annotations

from pathlib import Path

import click

from chirp_migrate import __version__
from chirp_migrate.cli.options import Command, json_option, output_options
from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.screen import open_screen
from chirp_migrate.exit_codes import ExitCode, epilog
from chirp_migrate.plans.plan import SCHEMA
from chirp_migrate.rules import all_rules

__all__ = ["rules"]


@click.command(
    cls=Command,
    epilog=epilog({ExitCode.OK: "listed"}, "chirp-migrate rules", "chirp-migrate rules --json - | jq '.rules[].code'"),
)
@json_option("the rules")
@output_options("Print codes and names alone.", "Print the reasons, too.")
def rules(json_file: Path | None, quiet: bool, verbose: bool, color: str) -> None:
    """List the rules: code, name, safety and what they are for.

    `chirp-migrate explain CODE` shows all of one.
    """
    json_output.check_writable(json_file)
    content = [
        {
            "code": rule.code,
            "name": rule.name,
            "safety": rule.safety.value,
            "summary": rule.summary,
            "reason": rule.reason,
        }
        for rule in all_rules()
    ]
    json_output.write(json_file, {"schema": SCHEMA, "tool": f"chirp-migrate {__version__}", "rules": content})
    if json_file == json_output.STANDARD_OUTPUT:
        return
    screen = open_screen(color)
    for rule in all_rules():
        screen.item(rule.code, f"{rule.name}, {rule.safety.value}", indent=0, style="cyan")
        if not quiet:
            screen.text(rule.summary, 8)
        if verbose:
            screen.text(rule.reason, 8, "dim")
