"""Convert the code cells of a Jupyter notebook to one Python module and back, so that rules can read a notebook.

The module contains the cells in their order. A marker, which is a comment, precedes each cell. After a rewrite of the
module, only the sources of the changed cells in the notebook change. Outputs, metadata, the order of keys, indentation
and escapes stay unchanged, byte for byte.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.magics import CellNotPython, MaskedCell, mask_magics, parse_cell, possible_variable_names
from chirp_migrate.source.notebook_json import CodeCell, code_cells
from chirp_migrate.source.text import NEWLINE, UnreadableSource, apply_edits, decode_text

#: Matches only the key `outputs`, and no text in a JSON string, where a backslash precedes every quotation mark.
_OUTPUTS = re.compile(r'(?<!\\)"outputs"\s*:\s*\[\s*[^\s\]]')


def has_stored_outputs(text: str) -> bool:
    """Return whether the JSON text of a notebook contains outputs of its cells."""
    return _OUTPUTS.search(text) is not None


def remove_stored_outputs(text: str) -> str:
    """Return the JSON text of a notebook without the outputs of its cells, such as images of many megabytes.

    If the text is not the JSON of a notebook, the result is the unchanged text.
    """
    if not has_stored_outputs(text):
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        return text
    for cell in cells:
        if isinstance(cell, dict):
            cell.pop("outputs", None)
    return json.dumps(document, ensure_ascii=False, indent=1)


@dataclass(frozen=True)
class _CellText:
    """The text of one cell in the module: its marker, a blank line, its Python code, and a newline.

    The blank line separates the marker from the code, and from text that a rewrite inserts above the code.
    """

    cell: CodeCell
    masked: MaskedCell
    text: str


@dataclass(frozen=True)
class NotebookSource:
    """A notebook that can be rewritten, like :class:`~chirp_migrate.source.text.SourceFile` for Python files.

    Attributes:
        text: the code cells as one Python module.
        unreadable: numbers of the code cells that cannot be read as Python, with the reasons; ``text`` does not contain
            these cells.
        masked: (cell, line, text) of each part that is not Python. Such parts are magics, shell commands, and whole
            cells in another language. Rules do not see these parts.
    """

    text: str
    unreadable: tuple[tuple[int, str], ...]
    masked: tuple[tuple[int, int, str], ...]
    _raw: str = field(repr=False)
    _tag: str = field(repr=False)
    _newline: str = field(repr=False)
    _pieces: tuple[_CellText, ...] = field(repr=False)
    _trailer: str = field(repr=False)

    @classmethod
    def from_bytes(cls, data: bytes) -> NotebookSource:
        """Read a notebook of format 4.

        Raises:
            UnreadableSource: the file is not UTF-8, not JSON, or a notebook of another format or another language than
                Python.
        """
        raw = decode_text(data)
        cells = code_cells(raw)
        code = "\n".join(cell.text for cell in cells)
        newline = "\r\n" if (first := NEWLINE.search(code)) and first.group() == "\r\n" else "\n"
        tag = "_chirp_cell"
        while tag in code:
            tag += "_"
        pieces: list[_CellText] = []
        unreadable: list[tuple[int, str]] = []
        masked: list[tuple[int, int, str]] = []
        number = 1
        for cell in cells:
            try:
                one = mask_magics(cell.text, tag, number)
            except CellNotPython as reason:
                masked.append((cell.number, 1, cell.text))
                if str(reason):
                    unreadable.append((cell.number, str(reason)))
                continue
            number += len(one.originals)
            masked += [(cell.number, line, text) for line, text in one.places()]
            text = f"# %% {tag} {cell.number}{newline}{newline}{one.text}{newline}"
            pieces.append(_CellText(cell, one, text))
        trailer = _line_of_read_names(masked, tag, newline) if pieces else ""
        text = "".join(piece.text for piece in pieces) + trailer
        return cls(text, tuple(unreadable), tuple(masked), raw, tag, newline, tuple(pieces), trailer)

    @property
    def data(self) -> bytes:
        """Return the bytes of the file as they were read."""
        return self._raw.encode("utf-8")

    def encode(self, text: str) -> bytes:
        """Return the bytes of the notebook with ``text`` as its code; cells with unchanged code keep their bytes.

        Raises:
            UnreadableSource: the rewritten code can no longer be divided into cells, a magic would move, or a cell
                would use a name that only a later cell defines.
        """
        if text == self.text:
            return self.data
        cells = self._split_into_cells(text)
        timed = [piece.masked.is_timed for piece in self._pieces]
        before = [piece.masked.text for piece in self._pieces]
        if _used_too_early(cells, timed) - _used_too_early(before, timed):
            raise UnreadableSource(
                "after the rewrite, a cell would use a name that is only imported or defined further down"
            )
        edits = [
            Edit(piece.cell.start, piece.cell.end, piece.cell.render(piece.masked.unmask(new), self._raw))
            for piece, new in zip(self._pieces, cells, strict=True)
            if new != piece.masked.text
        ]
        try:
            return apply_edits(self._raw, edits).encode("utf-8")
        except UnicodeEncodeError:
            raise UnreadableSource("the notebook contains invalid Unicode (half of a surrogate pair)") from None

    def locate(self, line: int) -> tuple[int, int]:
        """Return the number of the cell that contains a line of ``text``, and the number of the line in this cell.

        All numbers start at 1. The number of a cell counts cells of all types, such as Markdown cells.
        """
        starts = list(accumulate((len(NEWLINE.findall(piece.text)) for piece in self._pieces), initial=1))
        index = min(bisect_right(starts, line), len(self._pieces)) - 1
        piece = self._pieces[index]
        within = min(max(line - starts[index] - 2, 0), len(piece.masked.lines) - 1)
        return piece.cell.number, piece.masked.lines[within]

    def places(self) -> list[tuple[int, int] | None]:
        """Return the result of :meth:`locate` for every line of ``text``.

        The entry is None for a line that belongs to no cell: the two lines above each cell, and the last line of the
        module, which lists names.
        """
        found: list[tuple[int, int] | None] = []
        for piece in self._pieces:
            lines, count = piece.masked.lines, len(NEWLINE.findall(piece.text)) - 2
            found += [None, None, *((piece.cell.number, lines[min(at, len(lines) - 1)]) for at in range(count))]
        return [*found, None] if self._trailer else found

    def line_of(self, cell: int, line: int) -> int:
        """Return the line of ``text`` that :meth:`locate` maps to ``line`` of ``cell``."""
        begin = 1
        for piece in self._pieces:
            if piece.cell.number == cell:
                return begin + 2 + piece.masked.lines.index(line)
            begin += len(NEWLINE.findall(piece.text))
        raise KeyError(cell)

    def _split_into_cells(self, text: str) -> list[str]:
        newline = self._newline
        head, *parts = re.split(rf"# %% {self._tag} (\d+){newline}", text.removesuffix(self._trailer))
        expected = [str(piece.cell.number) for piece in self._pieces]
        if head or parts[::2] != expected or not text.endswith(self._trailer):
            raise UnreadableSource("the rewritten code cannot be divided into the cells of the notebook")
        cells = [part.removeprefix(newline).removesuffix(newline) for part in parts[1::2]]
        # If a rewrite removed the first lines of a cell, such as unused imports, also remove the blank lines below.
        return [
            new if piece.masked.text.startswith(("\r", "\n")) else new.lstrip("\r\n")
            for piece, new in zip(self._pieces, cells, strict=True)
        ]


def _line_of_read_names(masked: Sequence[tuple[int, int, str]], tag: str, newline: str) -> str:
    """Return the last line of the module, which lists the names that code outside of the module may read.

    Such code is in magics, in shell commands and in cells that are not part of the module. The result is "" if there
    are no such names.

    Without this line, a rewrite would remove an import as dead code if only a magic, such as ``%timeit
    DataLoader(data)``, uses the import. The line is an annotation such as ``_chirp_cell: "? DataLoader data timeit"``,
    which has no effect at run time. Rules treat each word in an annotation as a used name. The ``?`` makes the
    annotation an invalid type, so no rule rewrites the words.
    """
    found = sorted({word for *_, text in masked for word in possible_variable_names(text)})
    return f'{tag}: "? {" ".join(found)}"{newline}' if found else ""


def _used_too_early(cells: Sequence[str], timed: Sequence[bool]) -> set[tuple[str, int]]:
    """Return each name that a cell reads before the first statement that defines the name.

    The result contains pairs: the name, and the index of the cell that reads the name. A name in the body of a function
    counts as read at the definition of the function, although the function may run only later.

    Args:
        cells: the code of each cell.
        timed: for each cell, whether the names that the cell defines are local to the cell (``%%timeit``).

    Raises:
        UnreadableSource: the code of a cell is not valid Python.
    """
    first: dict[str, float] = {}
    private: dict[str, float] = {}
    reads: list[tuple[str, int, int]] = []
    place = 0
    for number, text in enumerate(cells):
        try:
            tree = parse_cell(text)
        except (SyntaxError, ValueError) as error:
            raise UnreadableSource(f"after the rewrite, a cell is not valid Python: {error}") from None
        for statement in tree.body:
            place += 1
            for name in _defined_names(statement):
                private[name] = inf
                if not timed[number]:
                    first.setdefault(name, place)
            if timed[number]:
                continue
            nodes = ast.walk(statement)
            reads += [(n.id, number, place) for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return {(name, number) for name, number, place in reads if first.get(name, private.get(name, 0)) > place}


def _defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield names that a statement defines in the notebook's namespace."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            pending += ast.iter_child_nodes(node)
