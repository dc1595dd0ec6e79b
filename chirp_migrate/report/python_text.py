"""The words of Python lines, for colours: one line at a time, so that any part of a file can be shown."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator

__all__ = ["strings_open", "words"]

_PREFIX = r"(?:[rbuft]{0,2})"
_LONG = rf'(?i:{_PREFIX})(?P<long>"""|\'\'\')(?:\\.|[^\\])*?(?:(?P=long)|\Z)'
_SHORT = r'"(?:\\.|[^"\\\r\n])*"?|\'(?:\\.|[^\'\\\r\n])*\'?'
#: Strings that may go over lines, and comments, in which quotes mean nothing.
_OVER_LINES = re.compile(rf"{_LONG}|{_SHORT}|#[^\r\n]*", re.DOTALL)
_NEWLINE = re.compile(r"\r\n|\r|\n")

_WORD = re.compile(
    rf"(?P<comment>\#.*)"
    rf"|(?P<string>\b(?i:[rbuft]{{1,2}})(?=[\"'])(?:\"\"\".*?(?:\"\"\"|$)|'''.*?(?:'''|$)|{_SHORT})"
    rf"|\"\"\".*?(?:\"\"\"|$)|'''.*?(?:'''|$)|{_SHORT})"
    r"|(?P<number>\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][-+]?\d+)?j?)\b)"
    r"|(?P<decorator>(?<=^)\s*@[\w.]+)"
    r"|(?P<defined>(?<=\bdef )\s*\w+|(?<=\bclass )\s*\w+)"
    r"|(?P<name>[^\W\d]\w*)"
)
_KEYWORDS = frozenset(keyword.kwlist)
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_")) | {"self", "cls"}


def strings_open(text: str) -> dict[int, str]:
    """The lines, from 1, that begin inside a string, with the quotes that end it."""
    found: dict[int, str] = {}
    line, position = 1, 0
    for match in _OVER_LINES.finditer(text):
        line += len(_NEWLINE.findall(text, position, match.start()))
        position = match.end()
        breaks = len(_NEWLINE.findall(match.group()))
        if breaks and not match.group().startswith("#"):
            quotes = match["long"] or match.group()[0]
            found.update((line + number, quotes) for number in range(1, breaks + 1))
        line += breaks
    return found


def words(line: str, inside: str = "") -> Iterator[tuple[str, str]]:
    """The parts of a line with their kinds; together they are the line.

    Kinds: ``comment``, ``string``, ``number``, ``keyword``, ``builtin``, ``defined`` (what ``def`` and ``class`` name),
    ``decorator``, and ``""`` for all else.

    Args:
        line: without its newline.
        inside: the quotes of a string that goes on from the line before (see :func:`strings_open`).
    """
    position = 0
    if inside:
        end = re.search(rf"(?:\\.|[^\\])*?{re.escape(inside)}", line)
        position = len(line) if end is None else end.end()
        yield "string", line[:position]
    for match in _WORD.finditer(line, position):
        kind = match.lastgroup or ""
        if kind == "name":
            kind = "keyword" if match.group() in _KEYWORDS else "builtin" if match.group() in _BUILTINS else ""
        if not kind:
            continue
        if match.start() > position:
            yield "", line[position : match.start()]
        yield kind, match.group()
        position = match.end()
    if position < len(line):
        yield "", line[position:]
