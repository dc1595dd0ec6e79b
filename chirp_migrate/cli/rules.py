"""``chirp-migrate rules``, and how rules are named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from chirp_migrate import __version__
from chirp_migrate.cli import json_file as json_output
from chirp_migrate.cli.paint import Paint, wrapped
from chirp_migrate.plan import SCHEMA
from chirp_migrate.rules import all_rules

__all__ = ["complete_rules", "rules", "separated"]


@click.command(epilog="Examples: chirp-migrate rules    chirp-migrate rules --json - | jq '.rules[].code'")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write the rules as JSON ('-': standard output).",
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
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


def separated(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """The parts of a repeatable option that takes lists with commas."""
    return tuple(one.strip() for given in value for one in given.split(",") if one.strip())


def complete_rules(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes and names of rules that continue what is typed, behind the last comma of a list."""
    begun, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{begun}{comma}{word}", help=rule.name)
        for rule in all_rules()
        for word in (rule.code, rule.name)
        if word.upper().startswith(last.upper()) and (last or word == rule.code)
    ]
