"""Lay out changed code as the project's formatter would, within the project's line length.

Black formats a changed statement if the statement had black's layout before the change. Black's layout is also correct
for projects that use ruff's formatter, because ruff writes the same layout. All other statements keep their layout.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chirp_migrate.source.files import read_file
from chirp_migrate.source.git import work_tree_top
from chirp_migrate.source.toml import parse_toml

if TYPE_CHECKING:
    import black

_RUFF_FILES = (".ruff.toml", "ruff.toml", "pyproject.toml")
#: Files with settings of flake8 in the format of configparser, each with the section of the settings.
_FLAKE8 = ((".flake8", "flake8"), ("setup.cfg", "flake8"), ("tox.ini", "flake8"), ("setup.cfg", "pycodestyle"))
_PEP8, _BLACK, _WIDEST = 79, 88, 120
_INDENT = 4
#: Text in comments that apply to the code on the same line, such as ``chirp: ignore``. Statements with this text are
#: not reformatted, because a reformatted statement could move code to another line.
_OWN_COMMENT = "chirp:"


@dataclass(frozen=True)
class CodeStyle:
    """How a project lays out its code.

    Attributes:
        root: folder of the project. Settings are read from this folder and the folders above it, up to the top of the
            git work tree. None means that no settings are read.
    """

    root: Path | None = None

    def load(self) -> None:
        """Import black and read the settings now, so that this work does not delay the first formatted statement."""
        import black  # noqa: F401

        _ = self._settings

    def longest_line(self, text: str) -> int:
        """Return the largest permitted line length, in columns, for a file with this text.

        If black, ruff and flake8 have no settings, the limit is the length of the file's longest line of code, but at
        least 88 and at most 120. The search for the longest line skips lines with only a comment. The search also skips
        lines in which a string comes before the first bracket, such as docstrings, because black does not wrap such
        lines.
        """
        if self.configured_length is not None:
            return self.configured_length
        return min(max(_BLACK, _longest_line(text)), _WIDEST)

    @property
    def configured_length(self) -> int | None:
        """Return the line length of black, ruff or flake8, in columns; None if the project has no settings for them."""
        return self._settings.get("line_length")

    def has_black_layout(self, code: str, text: str) -> bool:
        """Return whether code is in black's layout.

        Args:
            code: lines of a file, either whole statements or the header of a block.
            text: the text of the file. Without a setting, the permitted line length depends on this text (see
                :meth:`longest_line`).
        """
        return self._lay_out_by_black(code, text) == code

    def laid_out(self, before: str, after: str, text: str) -> str:
        """Return ``after`` in black's layout if ``before`` is in black's layout; otherwise return ``after`` unchanged.

        Args:
            before: lines of ``text``, either whole statements of one block or the header of a block.
            after: the lines that replace ``before``.
            text: the text of the file that contains ``before``. Without a setting, the permitted line length depends on
                this text (see :meth:`longest_line`).
        """
        if not after.strip() or not self.has_black_layout(before, text):
            return after
        if self.configured_length is None and _fits_without_comment(after, self.longest_line(text)):
            return after  # the line is too long for black only because of the comment at its end
        return self._lay_out_by_black(after, text) or after

    @cached_property
    def _formatted_lines(self) -> dict[tuple[str, int], str | None]:
        return {}

    def _lay_out_by_black(self, code: str, text: str) -> str | None:
        """Return ``code`` in black's layout, cached; None if black cannot or must not format the code.

        Black must not format code with a comment such as ``# chirp: ignore``, because the comment applies to its line.
        """
        asked = code, self.longest_line(text)
        if asked not in self._formatted_lines:
            self._formatted_lines[asked] = self._format_code(*asked)
        return self._formatted_lines[asked]

    def _format_code(self, code: str, longest: int) -> str | None:
        import black

        newline = "\r\n" if "\r\n" in code else "\n"
        lines = code.replace("\r\n", "\n")
        depth, rest = divmod(len(lines) - len(lines.lstrip(" ")), _INDENT)
        if rest or lines[:1] == "\t" or _OWN_COMMENT in lines:
            return None
        around = "".join(f"{' ' * _INDENT * level}if True:\n" for level in range(depth))
        opens = lines.rstrip().endswith(":")
        inside = f"{' ' * _INDENT * (depth + 1)}pass\n" if opens else ""
        try:
            written = black.format_str(f"{around}{lines}{inside}", mode=self._black_mode(longest))
            if self._settings.get("trailing_commas") and (ended := _with_trailing_commas(written)) != written:
                written = black.format_str(ended, mode=self._black_mode(longest))
        except (ValueError, AssertionError):
            # Black cannot parse a clause such as `else:`, or text that is not Python.
            return None
        found = written.split("\n")[depth : -2 if opens else -1]
        return "".join(f"{line}{newline}" for line in found) if lines.endswith("\n") else newline.join(found)

    def _black_mode(self, longest: int) -> black.Mode:
        import black

        apart = ("line_length", "trailing_commas")
        options = {name: value for name, value in self._settings.items() if name not in apart}
        return black.Mode(line_length=longest, **{"string_normalization": False, **options})

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        """Return the options for ``black.Mode``, and the additional option ``trailing_commas``.

        ``trailing_commas`` is True if ruff's linter requires trailing commas. The options come from the nearest folder
        with settings for black, ruff or flake8. Without such a folder, the dictionary is empty.
        """
        for folder in _folders_upwards(self.root):
            for read in (_black_settings, _ruff_settings, _flake8_settings):
                # If a setting has a wrong type, the tool cannot use its settings either.
                with suppress(AttributeError, TypeError):
                    if found := read(folder):
                        return found
        return {}


@lru_cache(maxsize=4)
def _longest_line(text: str) -> int:
    """Return the length, in characters, of the longest line of code in ``text`` that black could wrap.

    Black could wrap a line whose code, without a comment at the end, ends with a bracket, a colon or a comma. The
    search skips lines with a string before the first bracket, because black does not split strings.
    """
    longest = 0
    for line in text.splitlines():
        code = line.partition("  #")[0].rstrip()
        if code.endswith(tuple("()[]{}:,")) and not {*"#\"'"} & {*re.split(r"[(\[{]", code, maxsplit=1)[0]}:
            longest = max(longest, len(line))
    return longest


def _fits_without_comment(line: str, length: int) -> bool:
    """Return whether ``line`` ends with a comment, and its code is one line of at most ``length`` characters."""
    code, mark, _ = line.rstrip().rpartition("  # ")
    return bool(mark) and "\n" not in code and len(code) <= length


def read_ruff_settings(root: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the nearest folder with settings of ruff for ``root``, and these settings; None without such a folder.

    Raises:
        ValueError: a file with settings is not TOML.
        OSError: a file with settings cannot be read.
    """
    for folder in _folders_upwards(root):
        table = _ruff_in(folder, _toml)
        if table is not None:
            return folder, table
    return None


def _ruff_in(folder: Path, read: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return ruff's settings in a folder; None if the folder has no settings."""
    for name in _RUFF_FILES:
        content = read(folder / name)
        table = _table(content, "ruff") if name == "pyproject.toml" else content or None
        if table is not None:
            return table
    return None


def _folders_upwards(root: Path | None) -> list[Path]:
    """Return ``root`` and the folders above it, up to the top of the git work tree; an empty list for None."""
    if root is None:
        return []
    top = work_tree_top(root) or Path(root.anchor)
    return [one for one in (root, *root.parents) if one.is_relative_to(top)]


def _black_settings(folder: Path) -> Mapping[str, Any]:
    table = _table(_readable_toml(folder / "pyproject.toml"), "black")
    if table is None:
        return {}
    return {
        "line_length": _parse_number(table.get("line-length", table.get("line_length")), _BLACK),
        "string_normalization": not table.get("skip-string-normalization"),
        "magic_trailing_comma": not table.get("skip-magic-trailing-comma"),
        "preview": bool(table.get("preview")),
    }


def _ruff_settings(folder: Path) -> Mapping[str, Any]:
    table = _ruff_in(folder, _readable_toml)
    if table is None:
        return {}
    layout = table.get("format", {})
    return {
        "line_length": _parse_number(table.get("line-length"), _BLACK),
        "string_normalization": bool(layout) and layout.get("quote-style", "double") == "double",
        "magic_trailing_comma": not layout.get("skip-magic-trailing-comma"),
        "trailing_commas": _selects_rule(table, "COM812"),
    }


def _selects_rule(ruff: Mapping[str, Any], code: str) -> bool:
    """Return whether ruff's settings select its rule ``code``, such as "COM812".

    The settings select and ignore rules by prefixes of their codes, such as "COM". The longest prefix takes precedence.
    """
    lint = {**ruff, **ruff.get("lint", {})}
    selected = [*lint.get("select", ()), *lint.get("extend-select", ())]
    best = max((len(one) for one in selected if code.startswith(one)), default=0 if "ALL" in selected else -1)
    return best > max((len(one) for one in lint.get("ignore", ()) if code.startswith(one)), default=-1)


def _with_trailing_commas(code: str) -> str:
    """Add a trailing comma to each call that spans several lines and whose last argument ends its line."""
    lines = code.encode().split(b"\n")
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        given: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        line, column = max([((one.end_lineno or 1) - 1, one.end_col_offset) for one in given], default=(0, 0))
        alone = len(given) == 1 and isinstance(given[0], ast.GeneratorExp)
        if given and line + 1 < (node.end_lineno or 0) and len(lines[line]) == column and not alone:
            lines[line] += b","
    return b"\n".join(lines).decode()


def _flake8_settings(folder: Path) -> Mapping[str, Any]:
    for flake8 in _sections(folder, _FLAKE8):
        return {"line_length": _parse_number(flake8.get("max-line-length", flake8.get("max_line_length")), _PEP8)}
    return {}


def _sections(folder: Path, places: tuple[tuple[str, str], ...]) -> Iterator[Mapping[str, Any]]:
    for name, section in places:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(read_file(folder / name).decode("utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue  # flake8 could not read the file either
        if parser.has_section(section):
            yield dict(parser.items(section))


def _readable_toml(path: Path) -> Mapping[str, Any]:
    """Return the contents of a TOML file; an empty dictionary for a file that cannot be read or is not TOML."""
    try:
        return _toml(path)
    except (OSError, ValueError):
        return {}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return parse_toml(read_file(path).decode("utf-8"))
    except FileNotFoundError:
        return {}


def _table(content: Mapping[str, Any], tool: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = content.get("tool", {}).get(tool)
    return found


def _parse_number(value: object, otherwise: int) -> int:
    found = re.match(r"\s*(\d+)\s*(?:[#;]|$)", str(value))
    return int(found.group(1)) if found else otherwise
