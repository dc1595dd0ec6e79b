"""Convert hunks to replacements of whole lines, the form in which editors and code hosts apply fixes."""

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


def line_replacements_by_hunk(file: FilePlan, import_style: ImportStyle) -> Mapping[int, tuple[ReplacementEntry, ...]]:
    """Return a dictionary for a rewritten Python file: number of a hunk → replacements of whole lines.

    The replacements of a hunk change the file as if the user accepted only this hunk. So the replacements also add the
    imports that the hunk needs, and remove code that becomes unused.

    The positions of replacements refer to the current file without its byte order mark. If the file ends without a
    newline, the end of the file is the position after its last character.

    The result omits hunks of notebooks, because a line of code is not a line of the notebook file. The result also
    omits a hunk that changes the first line of a file with a byte order mark, because programs disagree on whether the
    mark belongs to the first line.

    Args:
        file: the changes of the file.
        import_style: how the project sorts its imports, for the imports that the hunks add.
    """
    if file.before is None or not file.hunks or file.path.endswith(".ipynb"):
        return {}
    source = SourceFile.from_bytes(file.before)
    module = Module(file.path, source.text)
    lines = SourceLines(source.text)
    fixes: dict[int, tuple[ReplacementEntry, ...]] = {}
    for hunk in file.hunks:
        replacements = _replacements(lines, text_with_hunks(module, [hunk], file.public, import_style))
        if replacements and (not source.bom or replacements[0].start > (1, 1)):
            fixes[hunk.number] = replacements
    return fixes


def _replacements(lines: SourceLines, new: str) -> tuple[ReplacementEntry, ...]:
    return tuple(
        ReplacementEntry(_line_and_column(lines, edit.start), _line_and_column(lines, edit.end), edit.replacement)
        for edit in whole_line_edits(lines.text, new)
    )


def _line_and_column(lines: SourceLines, offset: int) -> tuple[int, int]:
    """Convert an offset to (line, column). The end of a text that ends with a newline is column 1 of a new line."""
    if offset == len(lines.text) and lines.text.endswith(("\r", "\n")):
        return len(lines.lines) + 1, 1
    return lines.position(offset)
