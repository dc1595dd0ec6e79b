"""Mask IPython's own syntax in a notebook cell, so that the cell is valid Python, and restore the syntax later.

Each line with a magic, a shell command or a help request becomes one Python statement. So a block that contains only
such a line still contains a statement. The statement is an import of a unique name. Rewrites add new imports below the
existing imports (see :mod:`chirp_migrate.edits.imports`). Because masks are imports, rewrites also add new imports
below lines such as `%matplotlib inline` and `!pip install`. In two cases, the mask is a call such as ``name()``. For
``%%timeit``, a call keeps new imports out of the measured code. In ``files = !ls``, a call replaces only ``!ls``,
because the right side must be an expression.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from chirp_migrate.source.text import NEWLINE, SOURCE_LINE, UnreadableSource

#: Names of cell magics below which a cell contains Python code. The code runs in the namespace of the notebook, except
#: for `timeit`, which runs the code in its own function.
_PYTHON_BODY = frozenset({"time", "timeit", "capture", "prun"})
_CELL_MAGIC = re.compile(r"%%(\w+)(?!\w*\?)[^\r\n]*")
_CELL_MAGICS = re.compile(rf"\s*((?:{_CELL_MAGIC.pattern}\s*)*)")
_BLANK = re.compile(r"[ \t\f]*")
_REST = r"(?:\\(?:\r\n|\r|\n)|[^\r\n])*"
#: In Python, no statement begins with one of these characters, and no value after `=` begins with `!` or `%`.
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


class CellNotPython(Exception):
    """Raised for a cell that cannot be read as Python. The message is the reason.

    The message is empty if the user marks the cell as another language, for example with `%%bash`.
    """


@dataclass(frozen=True)
class MaskedCell:
    """A code cell that is valid Python, because masks replace IPython's own syntax.

    A mask is a Python statement, or a call on the right side of an assignment.

    Attributes:
        text: the code with its masks.
        originals: for each mask, the original text that the mask replaces, in the order of the text.
        lines: for every line of ``text``, the number of the corresponding line of the original cell, from 1.
        head: the cell magics (such as ``%%time``) at the top of the cell. A rewrite must leave these lines at the top.
        tag: the prefix of the name in every mask. No other text of the notebook contains this prefix.
    """

    text: str
    originals: dict[str, str]
    lines: tuple[int, ...]
    head: str
    tag: str

    @property
    def is_timed(self) -> bool:
        """Return whether the cell has the magic ``%%timeit``.

        IPython runs such a cell in a function of its own, so no other cell sees the names that the cell defines.
        """
        return re.search(r"(?m)^\s*%%timeit\b", self.head) is not None

    def places(self) -> list[tuple[int, str]]:
        """Return, for each mask, its line in the cell and the original text that the mask replaces."""
        found = re.finditer(rf"(?:import )?{self.tag}_\d+(?:\(\))?", self.text)
        return [(self.lines[len(NEWLINE.findall(self.text, 0, m.start()))], self.originals[m.group()]) for m in found]

    def unmask(self, text: str) -> str:
        """Return a rewritten ``text`` with each mask replaced by its original text.

        Raises:
            UnreadableSource: a mask is missing, occurs twice, or is no longer a whole statement or assigned value.
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
        raise UnreadableSource("a rewrite would remove or move a line with a magic or a shell command")


def mask_magics(source: str, tag: str, first_number: int) -> MaskedCell:
    """Return the cell as valid Python, with masks for IPython's own syntax.

    The name in each mask is ``tag`` and a number. The numbers are consecutive, and the first mask has ``first_number``.

    Raises:
        CellNotPython: the cell is in another language, or cannot be parsed.
    """
    head = _cell_magics(source)
    if not head and _syntax_problem(source) is None:
        return MaskedCell(source, {}, tuple(range(1, _count_newlines(source) + 2)), "", tag)
    pieces: list[str] = []
    originals: dict[str, str] = {}
    lines, position, line = [1], 0, 1
    for start, end, is_statement in _ipython_parts(source):
        name = f"{tag}_{first_number + len(originals)}"
        # New imports must not be added to the code that `%%timeit` measures. So the mask of `%%timeit` is a call, and
        # not an import, because rewrites add new imports below existing imports.
        runs_here = is_statement and not source.startswith("%%timeit", start)
        placeholder = f"import {name}" if runs_here else f"{name}()"
        originals[placeholder] = source[start:end]
        kept = source[position:start]
        pieces += [kept, placeholder]
        lines += range(line + 1, line + _count_newlines(kept) + 1)
        line += _count_newlines(source[position:end])
        position = end
    pieces.append(source[position:])
    lines += range(line + 1, line + _count_newlines(source[position:]) + 1)
    cell = MaskedCell("".join(pieces), originals, tuple(lines), head, tag)
    problem = _syntax_problem(cell.text)
    if problem is not None:
        row, message = problem
        raise CellNotPython(f"line {cell.lines[min(row, len(cell.lines)) - 1]}: {message}" if row else message)
    return cell


def possible_variable_names(text: str) -> set[str]:
    """Return the words in a text that may be names of the notebook's variables.

    The text is a magic, a shell command, or a whole cell that cannot be read as Python.
    """
    return {word for word in re.findall(r"[^\W\d]\w*", text) if not keyword.iskeyword(word)}


def parse_cell(text: str) -> ast.Module:
    """Parse Python code with ``ast.parse``, without warnings about the user's code.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: see :func:`ast.parse`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text + "\n")


def _syntax_problem(text: str) -> tuple[int, str] | None:
    """Return the line and the message of the syntax error in a text; None if the text is valid Python.

    The line is 0 if the line is unknown.
    """
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
        CellNotPython: a cell magic such as ``%%bash`` shows that the cell is not Python, or the cell magic is unknown.
    """
    head = found[1] if (found := _CELL_MAGICS.match(source)) else ""
    if any(name not in _PYTHON_BODY for name in re.findall(r"(?m)^\s*%%(\w+)", head)):
        raise CellNotPython("")
    return head.rstrip()


def _ipython_parts(source: str) -> Iterator[tuple[int, int, bool]]:
    """For each part in IPython's syntax, yield its start, its end, and whether it is a whole statement.

    A `%` or `!` at the start of a line is Python if the line is inside brackets or a string, or if the line above ends
    with a backslash.
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


def _count_newlines(text: str) -> int:
    return len(NEWLINE.findall(text))
