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

#: Key in ``click.Context.meta`` under which a command stores the places of its settings. The stored dictionary maps the
#: name of each option that a setting defines to the file and key of the setting.
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
_output_option = partial(option, group=_LAST_GROUP)


class WholeNumber(click.IntRange):
    """A parameter type for a whole number in a range."""

    name = "whole number"


class Number(click.FloatRange):
    """A parameter type for a finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value from the command line or from a settings file (see :class:`click.ParamType`)."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number.", param, ctx)


class WholeNumbers(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A parameter type for several whole numbers in a range, written as ``2,4,8`` or as a list in a settings file.

    The result is a tuple of the numbers in ascending order, without repetitions. For an empty text, the tuple is empty.

    Args:
        least: the smallest permitted number.
        most: the largest permitted number; None for no limit.
    """

    name = "whole numbers"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value from the command line or from a settings file (see :class:`click.ParamType`)."""
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

    Args:
        name: name of the type in help texts and messages.
        parse: function that gets a value and returns the parsed value. For an invalid value, the function must raise
            ``ValueError``. The message of this error must continue a sentence that begins with "the value", such as
            "must name a function".
    """

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value from the command line or from a settings file (see :class:`click.ParamType`)."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"the value {error}.", param, ctx)


def text_parser(is_valid: Callable[[str], Any], error_message: str) -> Callable[[Any], str]:
    """Return a function for :class:`ParsedValue` that accepts only valid texts, and returns these texts unchanged.

    Args:
        is_valid: function that gets a text, and returns a true value if the text is valid.
        error_message: message of the ``ValueError`` for invalid texts and for values that are not texts, such as "must
            name a function".
    """

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not is_valid(value):
            raise ValueError(error_message)
        return value

    return parse


def non_empty_text(description: str) -> ParsedValue:
    """Return a parameter type that rejects empty texts, which mostly come from an unset shell variable.

    Args:
        description: description of the required text for the error message, such as "a command".
    """
    return ParsedValue("text", text_parser(str.strip, f"is empty: pass {description}"))


class FilePath(click.Path):
    """A parameter type for the path of an existing or new file.

    An empty path is an error, and does not stand for the current folder. The constructor accepts the keyword arguments
    of ``click.Path``.
    """

    what = "a file"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path_type=Path, **kwargs)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value from the command line or from a settings file (see :class:`click.ParamType`)."""
        if value == "":  # mostly from an unset shell variable
            self.fail(f"the path is empty: pass {self.what}.", param, ctx)
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
        """Write the options to the help text. The name of each group is the heading above its options."""
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
    """Split the values of a repeatable option at commas, like :func:`split_at_commas`, and reject empty values.

    Raises:
        click.BadParameter: all values of the option are empty, mostly because of an unset shell variable.
    """
    parts = split_at_commas(ctx, parameter, value)
    if value and not parts:
        raise click.BadParameter("the value is empty: pass codes or names of rules (see `chirp-migrate rules`).")
    return parts


def complete_rule_codes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completions for a list of rules: the codes and names that begin with the text after the last comma."""
    begun, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{begun}{comma}{word}", help=rule.name)
        for rule in all_rules()
        for word in (rule.code, rule.name)
        if word.upper().startswith(last.upper()) and (last or word == rule.code)
    ]


def collect_options(
    argument_name: str, make_argument: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds several options to a command. The command gets all their values as one argument.

    Args:
        argument_name: name of this argument in the signature of the command.
        make_argument: function that gets the values of the options as keyword arguments, and returns the value of this
            argument.
        options: the decorators that add the options.
    """

    def parameter_holder() -> None:
        """Hold the parameters of the options, which click stores as an attribute of this function."""

    for one in options:
        one(parameter_holder)
    names = {parameter.name for parameter in parameter_holder.__click_params__}  # type: ignore[attr-defined]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def command_with_options(**given: Any) -> Any:
            collected = {option: given.pop(option) for option in names & given.keys()}
            return command(**given, **{argument_name: make_argument(**collected)})

        for one in reversed(options):
            command_with_options = one(command_with_options)
        return command_with_options

    return decorate


class _ProjectPath(FilePath):
    what = "the folder of your project"


#: Adds the argument ``path``: the project, by default the current folder. Accepts the keywords of ``click.argument``.
argument = partial(click.argument, "path", type=_ProjectPath(), default=".")
path_argument = argument()

#: Adds the option ``ignore_pins``. If True, a plan is applied even if the project pins versions that the runtime does
#: not support.
ignore_pins_option = option(
    "--ignore-pins", is_flag=True, group="Safety",
    help="Ignore pinned versions that chirpid_patch does not support.",
)  # fmt: skip


def plan_file_option(help_text: str, *, default: str | None = None) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the option ``plan_file``, which is the path of a plan file.

    Args:
        help_text: help text of the option.
        default: path of the plan file if the user passes none; None for no default.
    """
    return option(
        "--plan", "plan_file", type=FilePath(dir_okay=False), default=default,
        show_default=default is not None, metavar="FILE", help=help_text,
    )  # fmt: skip


def output_options(
    json_help: str,
    quiet_help: str = "Print only errors and findings that need attention.",
    verbose_help: str = "Print every finding in full.",
    *,
    json_option_names: Sequence[str] = ("--json",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options for output.

    The command gets the values of these options as the argument ``output``, an :class:`.Output`.

    Args:
        json_help: what the JSON document contains, for the help text.
        quiet_help: help text of ``--quiet``.
        verbose_help: help text of ``--verbose``.
        json_option_names: names of the option for the path of the JSON file.
    """
    return collect_options(
        "output",
        Output,
        _output_option(
            *json_option_names, "json_file", type=FilePath(allow_dash=True), metavar="FILE",
            help=f"Write {json_help} as JSON ('-': standard output).",
        ),
        _output_option("-q", "--quiet", is_flag=True, help=quiet_help),
        _output_option("-v", "--verbose", is_flag=True, help=verbose_help),
        _output_option(
            "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
            help="Colour output.",
        ),
    )  # fmt: skip
