"""Arguments and options that several commands have, written once so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from chirp_migrate.rules import all_rules

__all__ = [
    "color_option",
    "complete_rules",
    "json_option",
    "path_argument",
    "plan_file_option",
    "planning_options",
    "scaffold_options",
    "verbosity_options",
    "wait_option",
]


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


_Command = TypeVar("_Command", bound=Callable[..., Any])

#: ``path``: the project; by default the folder one is in.
path_argument = click.argument("path", type=click.Path(path_type=Path), default=".")

#: ``color``: auto, always or never (see :meth:`chirp_migrate.console.paint.Paint.for_stream`).
color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True, help="Colour output."
)

#: ``wait_s``: how long to wait for another run.
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Wait that long for another run on PATH to end.",
)


def plan_file_option(what: str, *, default: str | None = None) -> Callable[[_Command], _Command]:
    """``plan_file``: a plan as a file."""
    return click.option(
        "--plan",
        "plan_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=default,
        show_default=default is not None,
        metavar="FILE",
        help=what,
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
    """``select``, ``ignore``, ``unsafe``, ``notebooks``, ``tests``, ``exclude`` and ``jobs``: what is looked at, by
    which rules.
    """
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
            click.option(
                "--tests/--no-tests",
                default=None,
                help="Look at tests, too: tests/, test_*.py, *_test.py, conftest.py (default: leave them).",
            ),
            click.option(
                "--exclude",
                multiple=True,
                metavar="GLOBS",
                callback=separated,
                help="Do not rewrite these files or folders: patterns below PATH as in .gitignore, with commas.",
            ),
            click.option("-j", "--jobs", type=click.IntRange(1), help="Processes that plan (default: as many as pay)."),
        )
    ):
        command = option(command)
    return command


def scaffold_options(command: _Command) -> _Command:
    """``scaffold`` and ``vendor``: what is added to the project."""
    for option in (
        click.option(
            "--vendor", is_flag=True, help="Copy chirpid_patch into the project instead of adding a dependency."
        ),
        click.option(
            "--scaffold/--no-scaffold",
            default=None,
            help="Add the factory and monitor modules, the notebook and the tests to utils/ and beside it, or do not "
            "(default: where utils/ has training modules).",
        ),
    ):
        command = option(command)
    return command
