"""Convert hunks to replacements of whole lines. Editors and code hosts apply fixes in this form."""

from __future__ import annotations

from collections.abc import Mapping

from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.plans.plan_document import ReplacementEntry
from chirp_migrate.review.blocks import SourceLines
from chirp_migrate.source.diff import whole_line_edits
from chirp_migrate.source.text import SourceFile
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module


def line_replacements_by_hunk(file: FilePlan, style: ImportStyle) -> Mapping[int, tuple[ReplacementEntry, ...]]:
    """Return a dictionary for a rewritten Python file: number of a hunk → replacements of lines.

    Applying the replacements of a hunk has the same result as accepting only this hunk. So the replacements also add
    the imports of the hunk, and remove code that becomes unused.

    Positions refer to the current file, without byte order mark. In a file that ends without a newline, the last
    position is after the last character.

    Hunks of notebooks are omitted, because lines of code are not lines of the notebook file. In a file with a byte
    order mark, hunks that change the first line are also omitted. Only some programs count the mark as a part of the
    first line.
    """
    if file.before is None or not file.hunks or file.path.endswith(".ipynb"):
        return {}
    source = SourceFile.from_bytes(file.before)
    module = Module(file.path, source.text)
    lines = SourceLines(source.text)
    fixes: dict[int, tuple[ReplacementEntry, ...]] = {}
    for hunk in file.hunks:
        replacements = _replacements(lines, text_with_hunks(module, [hunk], file.public, style))
        if replacements and (not source.bom or replacements[0].start > (1, 1)):
            fixes[hunk.number] = replacements
    return fixes


def _replacements(lines: SourceLines, new: str) -> tuple[ReplacementEntry, ...]:
    return tuple(
        ReplacementEntry(_line_and_column(lines, edit.start), _line_and_column(lines, edit.end), edit.replacement)
        for edit in whole_line_edits(lines.text, new)
    )


def _line_and_column(lines: SourceLines, offset: int) -> tuple[int, int]:
    """Return (line, column) of an offset. After a newline, the end of the text is column 1 of a new line."""
    if offset == len(lines.text) and lines.text.endswith(("\r", "\n")):
        return len(lines.lines) + 1, 1
    return lines.position(offset)
