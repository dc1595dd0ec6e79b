"""Read default values for the options of ``verify`` and ``tune`` from ``pyproject.toml``, and check their types.

The tables are ``[tool.chirp-migrate.verify]`` and ``[tool.chirp-migrate.tune]``. The keys are the names of the options.
docs/settings.md describes all keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from chirp_migrate.cli.options import SETTING_PLACES, ParsedValue, text_parser
from chirp_migrate.console.text import suggest_name
from chirp_migrate.engine.settings import describe_setting_place, read_command_table
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.workload.choosing import parse_expression
from chirp_migrate.training.workload.hook import is_function_reference

_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_SHAPE = re.compile(r"([1-9]\d{0,4}x){1,2}[1-9]\d{0,4}")


def make_settings_callback(command: str) -> Callable[[click.Context, click.Parameter, Path], Path]:
    """Return a click callback for the argument PATH. The callback uses the project's settings as option defaults.

    Args:
        command: name of the command, such as ``verify``.

    Raises:
        UsageProblem: the table of the command has an unknown key, or a setting is invalid (see
            :func:`~chirp_migrate.engine.settings.read_settings`). The callback raises this error when click parses the
            command line.
    """

    def read(ctx: click.Context, parameter: click.Parameter, path: Path) -> Path:
        if not ctx.resilient_parsing and path.is_dir():
            _set_defaults(ctx, path, command)
        return path

    return read


def parameters_by_setting(command: click.Command) -> dict[str, str | None]:
    """Return a dictionary from the keys of a command's settings to the names of click's parameters.

    The key of a setting is the name of its option without ``--``.
    """
    return {
        option.removeprefix("--"): one.name
        for one in command.params
        if getattr(one, "is_setting", False)
        for option in one.opts
        if option.startswith("--")
    }


def are_unset_on_command_line(*names: str) -> bool:
    """Return whether the command line sets none of the parameters ``names``.

    If so, the values of these parameters come from settings or are defaults.
    """
    ctx = click.get_current_context()
    return all(ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE for name in names)


def _set_defaults(ctx: click.Context, path: Path, command: str) -> None:
    file, table = read_command_table(path, command)
    names = parameters_by_setting(ctx.command)
    kinds = {one.name: one.type for one in ctx.command.params}
    defaults: dict[str, Any] = {}
    for key, value in table.items():
        place = describe_setting_place(file, key, command)
        name = names.get(key)
        if name is None:
            raise UsageProblem(f"{place} is unknown; {suggest_name(key, names, 'the keys are')}")
        is_number = isinstance(kinds[name], click.IntRange | click.FloatRange)
        if isinstance(value, str) and is_number:
            raise UsageProblem(
                f"{place}: {value!r} is a text, not a {kinds[name].name}: write the number without quotes."
            )
        ctx.meta.setdefault(SETTING_PLACES, {})[name] = place
        relative_path = file.parent / value if isinstance(value, str) and value else None
        if relative_path is not None and (isinstance(kinds[name], click.Path) or kinds[name] is DATA):
            defaults[name] = relative_path
        elif relative_path is not None and key == "baseline" and relative_path.is_dir():
            defaults[name] = str(relative_path)
        else:
            # Convert numbers to text, so that click rejects `true` as a number and `1.0` as a whole number.
            defaults[name] = str(value) if is_number or not isinstance(value, str | bool | list) else value
    ctx.default_map = defaults


def values_from_options_and_settings(ctx: click.Context) -> dict[str, Any]:
    """Return the values that options and settings define, by name of click's parameter. Options override settings.

    Defaults are omitted. If the command line has a script (after ``--``), the setting ``workload`` has no effect, and
    the result also omits this setting.
    """
    names = {one.name for one in ctx.command.params if getattr(one, "is_setting", False)}
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params.keys() & names}
    by_options = {name for name, source in sources.items() if source is ParameterSource.COMMANDLINE}
    by_settings = {name for name, source in sources.items() if source is ParameterSource.DEFAULT_MAP}
    if ctx.params.get("script"):
        by_settings -= {"workload"}
    script = {"script": ctx.params["script"]} if ctx.params.get("script") else {}
    return {name: ctx.params[name] for name in by_options | by_settings} | script


def _parse_selection(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    parse_expression(value)
    return value


def _parse_data_path(value: Any) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError("must be the path of a file or folder")
    return Path(value)


def _parse_shape(value: Any) -> tuple[int, int, int]:
    """Parse a shape such as ``1x224x313``, ``224x313`` or ``[224, 313]`` to (channels, frequency bins, time frames)."""
    text = "x".join(map(str, value)) if isinstance(value, list | tuple) else value
    if not isinstance(text, str) or not _SHAPE.fullmatch(text):
        raise ValueError("must be a shape such as 1x224x313")
    channels, bins, frames = (1, *map(int, text.split("x")))[-3:]
    return channels, bins, frames


_FORMS = '"package.module:{0}" or "folder/file.py:{0}"'
WORKLOAD = ParsedValue(
    "workload", text_parser(is_function_reference, f"must name a function as {_FORMS.format('function')}")
)
REFERENCE = ParsedValue(
    "reference", text_parser(is_function_reference, f"must name a function or class as {_FORMS.format('name')}")
)
MODEL = ParsedValue("model", text_parser(_CLASS.fullmatch, 'must name a class as "package.module:ClassName"'))
EXPRESSION = ParsedValue("expression", _parse_selection)
SCRIPT_ARGUMENT = click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[-- python FILE.py …]")
DATA = ParsedValue("path", _parse_data_path)
SHAPE = ParsedValue("shape", _parse_shape)
