"""Find the span of each cell's source in the JSON of a notebook, so that only changed cells are written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from chirp_migrate.source.text import UnreadableSource

_SPACE = re.compile(r"[ \t\r\n]*")
#: One line of code inside a JSON string, with its escapes.
_PIECE = re.compile(r"(?:[^\\]|\\[^n])*(?:\\n|\Z)")
_DECODER = json.JSONDecoder()
_PYTHON = ("python", "ipython", "pyspark")

#: The containers whose members are read with their spans: the notebook, the list of its cells, and each cell. Every
#: other value is read as a whole.
_Shape = Mapping[str | int, Any]
_EACH = -1
_NOTEBOOK: _Shape = {"cells": {_EACH: {}}}


class _JsonValue(NamedTuple):
    """A JSON value and its span in the raw text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True)
class CodeCell:
    """The ``source`` of a code cell.

    Attributes:
        number: number of the cell, counted over all cells from 1.
        value: the source as a string or as a list of strings (nbformat allows both).
        start: offset of the value in the raw text of the notebook.
        end: offset after the value.
    """

    number: int
    value: str | list[str]
    start: int
    end: int

    @property
    def text(self) -> str:
        """Return the code of the cell."""
        return self.value if isinstance(self.value, str) else "".join(self.value)

    def render(self, text: str, raw: str) -> str:
        """Return new code as JSON in the same form as the old source.

        The form is a string, or a list of strings with the layout of the old list.

        Args:
            text: the new code.
            raw: raw text of the whole notebook. Unchanged lines of code keep the JSON escapes that they have in this
                text.
        """
        whole = isinstance(self.value, str)
        spans = [(self.start, self.end)]
        if not whole:
            spans = [(element.start, element.end) for element in _read_value(raw, self.start, {})[0].values()]
        pieces = [piece for start, end in spans for piece in _PIECE.findall(raw[start + 1 : end - 1])]
        known = {json.loads(f'"{piece}"'): piece for piece in pieces}
        escape_all = raw.isascii()

        def string(code: str) -> str:
            lines = (known.get(line) or json.dumps(line, ensure_ascii=escape_all)[1:-1] for line in _lines(code))
            return '"' + "".join(lines) + '"'

        if whole:
            return string(text)
        if self.value == self.text.splitlines(keepends=True):
            elements = text.splitlines(keepends=True)
        else:
            elements = [text] if len(self.value) == 1 else _lines(text)
        if not elements or not spans:
            return "[" + ", ".join(map(string, elements)) + "]"
        opening, closing = raw[self.start : spans[0][0]], raw[spans[-1][1] : self.end]
        if len(spans) > 1:
            separator = raw[spans[0][1] : spans[1][0]]
        else:
            inline = "," if raw[self.start - 1] == ":" else ", "
            separator = "," + opening[1:] if len(opening) > 1 else inline
        return opening + separator.join(map(string, elements)) + closing


def code_cells(raw: str) -> list[CodeCell]:
    """Return the code cells of a Python notebook, in order.

    Args:
        raw: text of an ``.ipynb`` file, which may begin with a byte order mark.

    Raises:
        UnreadableSource: the text is not valid JSON, or a notebook of a format other than 4, or of a language other
            than Python.
    """
    begin = 1 if raw.startswith("\ufeff") else 0
    try:
        members, end = _read_value(raw, _skip_white_space(raw, begin), _NOTEBOOK)
        if _skip_white_space(raw, end) != len(raw):
            raise json.JSONDecodeError("Extra data", raw, end)
    except (ValueError, RecursionError) as error:  # a number with too many digits raises ValueError, too
        raise UnreadableSource(f"the file cannot be read as a notebook: {error}") from None
    if not isinstance(members, dict):
        raise UnreadableSource("the file is JSON, but not a notebook")
    _check_format(members)
    cells = members.get("cells")
    if cells is None or not raw.startswith("[", cells.start):
        raise UnreadableSource("the cells of the notebook are not a list")
    read = (_code_cell(number, cell.value) for number, cell in enumerate(cells.value.values(), 1))
    return [cell for cell in read if cell is not None]


def _check_format(members: Mapping[str, _JsonValue]) -> None:
    version = members["nbformat"].value if "nbformat" in members else None
    if "cells" not in members and "worksheets" not in members:
        raise UnreadableSource("the file is JSON, but not a notebook")
    if version != 4:
        raise UnreadableSource(
            f"the notebook has format {version!r}, not 4; save the notebook in Jupyter to convert it to format 4"
        )
    metadata = members["metadata"].value if "metadata" in members else None
    given = [_nested_value(metadata, "kernelspec", "language"), _nested_value(metadata, "language_info", "name")]
    languages = [name for name in given if isinstance(name, str)]
    if languages and not any(name.lower().startswith(_PYTHON) for name in languages):
        raise UnreadableSource(f"the kernel of the notebook runs {languages[0]}, not Python")


def _code_cell(number: int, members: object) -> CodeCell | None:
    if not isinstance(members, dict) or not isinstance(_nested_value(members, "cell_type", 0), str):
        raise UnreadableSource(f"cell {number} has no cell type")
    if members["cell_type"].value != "code":
        return None
    language = _nested_value(members, "metadata", 0, "vscode", "languageId")
    if isinstance(language, str) and language.lower() != "python":
        return None
    source = members.get("source")
    if source is None:
        raise UnreadableSource(f"cell {number} has no source")
    value = source.value
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise UnreadableSource(f"the source of cell {number} is neither a string nor a list of strings")
    return CodeCell(number, value, source.start, source.end)


def _nested_value(value: Any, *keys: str | int) -> object:
    """Return the value under nested keys; ``None`` if a key is missing."""
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _read_value(raw: str, at: int, shape: _Shape | None) -> tuple[Any, int]:
    """Parse the JSON value at offset ``at``, and return the value and the offset of its end.

    ``shape`` selects the values whose members get spans. ``shape`` maps the key of a member, or -1 for all items of a
    list, to the ``shape`` of this member. If ``shape`` is None, or the value is neither an object nor a list, the
    result is the value that ``json.loads`` would return. In all other cases, the result is a dictionary of all members,
    each with its span. The keys are the keys of the object, or the indices in the list.

    Raises:
        json.JSONDecodeError: the text is not valid JSON, or a key occurs twice.
    """
    if shape is None or not raw.startswith(("{", "["), at):
        return _DECODER.raw_decode(raw, at)
    closing = "}" if raw[at] == "{" else "]"
    members: dict[str | int, _JsonValue] = {}
    at = _skip_white_space(raw, at + 1)
    while not raw.startswith(closing, at):
        if members:
            at = _offset_after(raw, at, ",")
        key: str | int = len(members)
        if closing == "}":
            key, at = _DECODER.raw_decode(raw, at)
            if not isinstance(key, str) or key in members:
                raise json.JSONDecodeError("a key is not a string, or appears twice", raw, at)
            at = _offset_after(raw, _skip_white_space(raw, at), ":")
        value, end = _read_value(raw, at, shape.get(key if closing == "}" else _EACH))
        members[key] = _JsonValue(value, at, end)
        at = _skip_white_space(raw, end)
    return members, at + 1


def _offset_after(raw: str, at: int, mark: str) -> int:
    """Return the offset of the first character after ``mark`` and after the white space that follows ``mark``."""
    if not raw.startswith(mark, at):
        raise json.JSONDecodeError(f"Expecting {mark!r}", raw, at)
    return _skip_white_space(raw, at + 1)


def _skip_white_space(raw: str, at: int) -> int:
    space = _SPACE.match(raw, at)
    return space.end() if space else at


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
