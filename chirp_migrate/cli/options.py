"""Arguments and options that several commands have, written once so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from chirp_migrate.cli.rules import complete_rules, separated

__all__ = ["color_option", "json_option", "path_argument", "planning_options", "verbosity_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: ``path``: the backend.
path_argument = click.argument("path", type=click.Path(path_type=Path))

#: ``color``: auto, always or never (see :meth:`chirp_migrate.cli.paint.Paint.for_stream`).
color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True, help="Colour output."
)


def json_option(what: str, *names: str) -> Callable[[_Command], _Command]:
    """``json_file``: where ``what`` is written as JSON."""
    return click.option(
        *(names or ("--json",)),
        "json_file",
        type=click.Path(path_type=Path, allow_dash=True),
        help=f"Write {what} as JSON ('-': standard output).",
    )


def verbosity_options(command: _Command) -> _Command:
    """``quiet`` and ``verbose``."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="List every finding, also what is suppressed."),
        click.option("-q", "--quiet", is_flag=True, help="Print errors and what needs attention only."),
    ):
        command = option(command)
    return command


def planning_options(command: _Command) -> _Command:
    """``select``, ``ignore``, ``unsafe``, ``notebooks`` and ``jobs``: what is looked at, by which rules."""
    for option in reversed(
        (
            click.option(
                "--select",
                multiple=True,
                metavar="CODES",
                callback=separated,
                shell_complete=complete_rules,
                help="Run only these rules: codes, beginnings of codes or names, with commas (see `rules`).",
            ),
            click.option(
                "--ignore",
                multiple=True,
                metavar="CODES",
                callback=separated,
                shell_complete=complete_rules,
                help="Do not run these rules.",
            ),
            click.option(
                "--unsafe/--no-unsafe",
                default=None,
                help="Also apply rules that change what training learns (listed as opt-in).",
            ),
            click.option(
                "--notebooks/--no-notebooks",
                default=None,
                help="Look at notebooks, too (the default), or leave them.",
            ),
            click.option("-j", "--jobs", type=click.IntRange(1), help="Processes that plan (default: as many as pay)."),
        )
    ):
        command = option(command)
    return command
