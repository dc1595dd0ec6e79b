"""``chirp-migrate rules``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate import __version__
from chirp_migrate.cli.options import color_option, json_option
from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.paint import Paint, wrapped
from chirp_migrate.exit_codes import ExitCode, epilog
from chirp_migrate.plans.plan import SCHEMA
from chirp_migrate.rules import all_rules

__all__ = ["rules"]


@click.command(
    epilog=epilog({ExitCode.OK: "listed"}, "chirp-migrate rules", "chirp-migrate rules --json - | jq '.rules[].code'")
)
@json_option("the rules")
@color_option
def rules(json_file: Path | None, color: str) -> None:
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
    paint = Paint.for_stream(sys.stdout, color)
    width = max(len(rule.name) for rule in all_rules())
    for rule in all_rules():
        click.echo(f"{paint(rule.code, '36')}  {rule.name:<{width}}  {rule.safety.value}", color=paint.on)
        click.echo("\n".join(wrapped(rule.summary, " " * 8)))
