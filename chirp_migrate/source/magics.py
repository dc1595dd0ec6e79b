"""Masking of IPython's own syntax in a notebook cell, so that the cell is Python, and restoring it unchanged.

A magic, shell or help line becomes one statement of Python, so that blocks do not become empty. It is an import of a
unique name, because :mod:`chirp_migrate.edits.imports` then adds imports below lines such as `%matplotlib inline` and
`!pip install`, as a human would. The right side of ``files = !ls`` becomes a call.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from chirp_migrate.source.text import NEWLINE, SOURCE_LINE, UnreadableSource

__all__ = ["MaskedCell", "NotPython", "mask", "parse_cell", "words"]

#: Cell magics whose body is Python that runs in the notebook's namespace (`timeit`: in a function of its own).
_PYTHON_BODY = frozenset({"time", "timeit", "capture", "prun"})
_CELL_MAGIC = re.compile(r"%%(\w+)(?!\w*\?)[^\r\n]*")
_CELL_MAGICS = re.compile(rf"\s*((?:{_CELL_MAGIC.pattern}\s*)*)")
_BLANK = re.compile(r"[ \t\f]*")
_REST = r"(?:\\(?:\r\n|\r|\n)|[^\r\n])*"
#: No Python statement begins with one of these, and nothing right of `=` with `!` or `%`.
_ESCAPED = re.compile(rf"[%!?,;/]{_REST}")
_ESCAPED_VALUE = re.compile(rf"[ \t]*([!%]{_REST})")
_TOKEN = re.compile(
    r'(?P<string>"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)'
    r'|"(?:\\(?:\r\n|.)|[^"\\\r\n])*"?|\'(?:\\(?:\r\n|.)|[^\'\\\r\n])*\'?)'
    r"|(?P<comment>\#[^\r\n]*)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<join>\\(?:\r\n|\r|\n))|(?P<newline>\r\n|\r|\n)"
    r"|(?P<assign>(?<![-=!<>:+*/%&|^@])=(?!=))"
    r"|(?P<help>\?[ \t]*)",
    re.DOTALL,
)


class NotPython(Exception):
    """A cell is not readable Python; the message has the reason.

    The message is empty for cells that the user marks as another language (`%%bash`).
    """


@dataclass(frozen=True)
class MaskedCell:
    """A code cell as Python.

    Attributes:
        text: the code as Python.
        originals: the text that each mask replaces, in the order of the text.
        lines: for every line of ``text`` the 1-based line of the cell it comes from.
        head: the cell magics that must stay at the top.
        tag: the beginning of every mask; no other text of the notebook contains it.
    """

    text: str
    originals: dict[str, str]
    lines: tuple[int, ...]
    head: str
    tag: str

    @property
    def is_timed(self) -> bool:
        """Return whether the cell runs in its own function, so that other cells do not see its names."""
        return re.search(r"(?m)^\s*%%timeit\b", self.head) is not None

    def places(self) -> list[tuple[int, str]]:
        """Yield the line in the cell and the text of each masked part."""
        found = re.finditer(rf"(?:import )?{self.tag}_\d+(?:\(\))?", self.text)
        return [(self.lines[len(NEWLINE.findall(self.text, 0, m.start()))], self.originals[m.group()]) for m in found]

    def unmask(self, text: str) -> str:
        """Return a rewritten ``text`` with the notebook's own syntax back in its place.

        Raises:
            UnreadableSource: a mask is missing, occurs twice, or is no longer a complete statement (or value).
        """
        form = re.compile(rf"(.*?)((?:import )?{self.tag}_\d+(?:\(\))?)", re.DOTALL)
        found: list[str] = []
        pieces: list[str] = []
        for line in SOURCE_LINE.findall(text):
            if self.tag in line:
                body = line.rstrip("\r\n")
                match = form.fullmatch(body)
                if match is None or match[2] not in self.originals or match[1].strip()[-1:] not in ("", "="):
                    break
                found.append(match[2])
                line = match[1] + self.originals[match[2]] + line[len(body) :]
            pieces.append(line)
        else:
            restored = "".join(pieces)
            if sorted(found) == sorted(self.originals) and restored.lstrip(" \t\r\n").startswith(self.head):
                return restored
        raise UnreadableSource("a rewrite would displace a magic or shell line")


def mask(source: str, tag: str, number: int) -> MaskedCell:
    """Return the cell as Python; its masks are ``tag`` with numbers from ``number`` on.

    Raises:
        NotPython: the cell is in another language, or cannot be parsed.
    """
    head = _cell_magics(source)
    if not head and _syntax_problem(source) is None:
        return MaskedCell(source, {}, tuple(range(1, _breaks(source) + 2)), "", tag)
    pieces: list[str] = []
    originals: dict[str, str] = {}
    lines, position, line = [1], 0, 1
    for start, end, is_statement in _ipython_parts(source):
        name = f"{tag}_{number + len(originals)}"
        # The imports of the notebook do not belong into a timed body, so a call ends the leading imports.
        runs_here = is_statement and not source.startswith("%%timeit", start)
        placeholder = f"import {name}" if runs_here else f"{name}()"
        originals[placeholder] = source[start:end]
        kept = source[position:start]
        pieces += [kept, placeholder]
        lines += range(line + 1, line + _breaks(kept) + 1)
        line += _breaks(source[position:end])
        position = end
    pieces.append(source[position:])
    lines += range(line + 1, line + _breaks(source[position:]) + 1)
    cell = MaskedCell("".join(pieces), originals, tuple(lines), head, tag)
    problem = _syntax_problem(cell.text)
    if problem is not None:
        row, message = problem
        raise NotPython(f"line {cell.lines[min(row, len(cell.lines)) - 1]}: {message}" if row else message)
    return cell


def words(text: str) -> set[str]:
    """Return the words in a part with IPython's syntax that may be names of the notebook."""
    return {word for word in re.findall(r"[^\W\d]\w*", text) if not keyword.iskeyword(word)}


def parse_cell(text: str) -> ast.Module:
    """Return ``ast.parse`` without warnings about the user's code.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: see :func:`ast.parse`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text + "\n")


def _syntax_problem(text: str) -> tuple[int, str] | None:
    """Return line and message of the reason why the text is not Python."""
    try:
        parse_cell(text)
    except SyntaxError as error:
        return error.lineno or 0, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 0, str(error)
    return None


def _cell_magics(source: str) -> str:
    """Return the cell magics at the beginning of a Python cell.

    Raises:
        NotPython: the magic of the cell takes, or may take, something other than Python.
    """
    head = found[1] if (found := _CELL_MAGICS.match(source)) else ""
    if any(name not in _PYTHON_BODY for name in re.findall(r"(?m)^\s*%%(\w+)", head)):
        raise NotPython("")
    return head.rstrip()


def _ipython_parts(source: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each part with IPython's syntax, and whether it is a whole statement.

    A `%` or `!` that begins a line inside brackets or strings, or after a backslash, is Python's.
    """
    position = 0
    while position < len(source):
        blank = _BLANK.match(source, position)
        begin = blank.end() if blank else position
        magic = _CELL_MAGIC.match(source, begin) or _ESCAPED.match(source, begin)
        if magic is not None:
            yield magic.start(), magic.end(), True
            following = NEWLINE.match(source, magic.end())
            position = following.end() if following else len(source)
            continue
        position = len(source)
        depth, assigned, last = 0, False, None
        for token in _TOKEN.finditer(source, begin):
            kind = token.lastgroup
            if kind == "newline" and depth == 0:
                position = token.end()
                break
            if kind == "assign" and depth == 0 and not assigned:
                assigned = True
                value = _ESCAPED_VALUE.match(source, token.end())
                if value is not None:
                    yield value.start(1), value.end(1), False
                    position, last = value.end(), None
                    break
            depth = max(0, depth + (kind == "open") - (kind == "close"))
            last = token
        if last is not None and last.lastgroup == "help" and source[last.end() : last.end() + 1] in ("", "\r", "\n"):
            yield begin, last.end(), True


def _breaks(text: str) -> int:
    return len(NEWLINE.findall(text))
