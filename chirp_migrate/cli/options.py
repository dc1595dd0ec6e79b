"""Arguments and options that several commands share. Each option has the same meaning in all commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from chirp_migrate.console.output import Output
from chirp_migrate.errors import UsageProblem
from chirp_migrate.rules import all_rules

#: Key in ``click.Context.meta``. The value is a dictionary: name of an option that a setting defines → file and key of
#: the setting.
SETTING_PLACES = "chirp_migrate.setting_places"

_LAST_GROUP = "Output"
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class _Option(click.Option):
    def __init__(self, *args: Any, group: str = "Options", is_setting: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group, self.is_setting = group, is_setting


#: ``click.option`` with two more arguments: ``group``, a heading in ``--help``; and ``is_setting``, whether
#: ``pyproject.toml`` may set the option.
option = partial(click.option, cls=_Option)
_printed = partial(option, group=_LAST_GROUP)


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


class Number(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value of the command line or of a setting (see :class:`click.ParamType`)."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number.", param, ctx)


class WholeNumbers(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A parameter type for several whole numbers in a range, written as ``2,4,8`` or as a list in a settings file.

    The value is a tuple of the numbers in ascending order, without repetitions. For an empty text, the tuple is empty.

    Args:
        least: the smallest permitted number.
        most: the largest permitted number; None for no limit.
    """

    name = "whole numbers"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value of the command line or of a setting (see :class:`click.ParamType`)."""
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words = [word.strip() for word in text.split(",")] if text.strip() else []
        numbers = [int(word) for word in words if word.isdecimal()]
        most = max(numbers, default=0) if self._most is None else self._most
        if len(numbers) != len(words) or any(not self._least <= number <= most for number in numbers):
            bounds = f"of at least {self._least}" if self._most is None else f"from {self._least} to {self._most}"
            self.fail(f"pass numbers {bounds}, separated by commas, such as 2,4,8, not {text!r}.", param, ctx)
        return tuple(sorted(set(numbers)))


class ParsedValue(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A parameter type that calls a function to parse a value.

    For an invalid value, the function must raise ``ValueError`` with a message about the required form.
    """

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value of the command line or of a setting (see :class:`click.ParamType`)."""
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"it {error}.", param, ctx)


def text_that(fits: Callable[[str], Any], must: str) -> Callable[[Any], str]:
    """Return a function for :class:`ParsedValue` that accepts the texts for which ``fits`` is true."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError(must)
        return value

    return read


def non_empty_text(what: str) -> ParsedValue:
    """Return a type for texts that are not empty. An empty text mostly comes from an unset shell variable."""
    return ParsedValue("text", text_that(str.strip, f"is empty: pass {what}"))


class FilePath(click.Path):
    """The path of an existing or new file. An empty path is an error, and does not stand for the current folder.

    The keyword arguments are the arguments of ``click.Path``.
    """

    what = "a file"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path_type=Path, **kwargs)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value of the command line or of a setting (see :class:`click.ParamType`)."""
        if value == "":  # mostly from an unset shell variable
            self.fail(f"it is empty: pass {self.what}.", param, ctx)
        return super().convert(value, param, ctx)


class CommandWithOptionGroups(click.Command):
    """A command whose help shows its options in groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            UsageProblem: a setting has an invalid value. The message names the file and the key of the setting.
        """
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = error.param.name if error.param is not None else None
            if name is None or ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
                raise
            raise UsageProblem(f"{ctx.meta[SETTING_PLACES][name]}: {error.message}") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options to the help, each group under the name of the group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(parameter, "group", _LAST_GROUP), []).append(record)
        for title in sorted(groups, key=lambda one: one == _LAST_GROUP):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def split_at_commas(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """Split the values of a repeatable option at commas: for ``-s A,B -s C``, the result is ``("A", "B", "C")``."""
    return tuple(one.strip() for given in value for one in given.split(",") if one.strip())


def split_selectors(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """Return the result of :func:`split_at_commas`.

    Raises:
        click.BadParameter: the option has an empty value, mostly because of an unset shell variable.
    """
    parts = split_at_commas(ctx, parameter, value)
    if value and not parts:
        raise click.BadParameter("it is empty: pass codes or names of rules (see `chirp-migrate rules`).")
    return parts


def complete_rule_codes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the codes and names of rules with which the shell completes the text after the last comma."""
    begun, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{begun}{comma}{word}", help=rule.name)
        for rule in all_rules()
        for word in (rule.code, rule.name)
        if word.upper().startswith(last.upper()) and (last or word == rule.code)
    ]


def collect_options(
    name: str, make: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that passes the values of several options to a command as one argument.

    Args:
        name: name of the argument.
        make: function that gets the values of the options as keyword arguments, and returns the argument.
        options: the decorators that add the options.
    """

    def optioned() -> None:
        """Collect the parameters of the options."""

    for one in options:
        one(optioned)
    names = {parameter.name for parameter in optioned.__click_params__}  # type: ignore[attr-defined]

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathering(**given: Any) -> Any:
            own = {option: given.pop(option) for option in names & given.keys()}
            return command(**given, **{name: make(**own)})

        for one in reversed(options):
            gathering = one(gathering)
        return gathering

    return decorated


class _Project(FilePath):
    what = "the folder of your project"


#: Adds the argument ``path``: the project, by default the current folder. Accepts the keywords of ``click.argument``.
argument = partial(click.argument, "path", type=_Project(), default=".")
path_argument = argument()

#: Adds the option ``ignore_pins``: whether to apply even if the project pins versions that the runtime does not
#: support.
ignore_pins_option = option(
    "--ignore-pins", is_flag=True, group="Safety",
    help="Ignore pinned versions that chirpid_patch does not support.",
)  # fmt: skip


def plan_file_option(what: str, *, default: str | None = None) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the option ``plan_file``, the path of a plan file, with the help text ``what``."""
    return option(
        "--plan", "plan_file", type=FilePath(dir_okay=False), default=default,
        show_default=default is not None, metavar="FILE", help=what,
    )  # fmt: skip


def output_options(
    json: str,
    quiet: str = "Print only errors and findings that need attention.",
    verbose: str = "Print every finding in full.",
    *,
    names: Sequence[str] = ("--json",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options for output. The command gets the argument ``output``: :class:`.Output`.

    Args:
        json: what the JSON document contains, for the help text.
        quiet: help text of ``--quiet``.
        verbose: help text of ``--verbose``.
        names: names of the option that sets the file of the JSON document.
    """
    return collect_options(
        "output",
        Output,
        _printed(
            *names, "json_file", type=FilePath(allow_dash=True), metavar="FILE",
            help=f"Write {json} as JSON ('-': standard output).",
        ),
        _printed("-q", "--quiet", is_flag=True, help=quiet),
        _printed("-v", "--verbose", is_flag=True, help=verbose),
        _printed(
            "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
            help="Colour output.",
        ),
    )  # fmt: skip
