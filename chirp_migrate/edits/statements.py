"""Remove, insert or split whole statements, and add a decorator to a class."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import NEWLINE, apply_edits_in_span
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, find_nodes

#: Comments for tools. Such a comment applies only to its own line.
_PRAGMA = re.compile(r"#\s*(noqa|type:|fmt:|pylint:|pragma|mypy:|pyright:|ruff:|isort:|yapf:)")


def delete_lines_of_statement(module: Module, statement: cst.CSTNode) -> Edit:
    """Return the edit that removes all lines of a statement."""
    start, end = module.span(statement)
    return Edit(module.line_start(start), module.line_end(end - 1), "")


def class_decorator_insertion(
    module: Module, code_style: CodeStyle, node: cst.ClassDef, name: str, arguments: Sequence[str]
) -> Edit:
    """Return the edit that puts ``@name(arguments)`` above a class that has no decorator yet."""
    line = call_text(module, code_style, f"@{name}", arguments)
    place = module.span(node)[0]
    # The edit replaces the word `class`, and writes the word again below the decorator. So the lines that other edits
    # insert above the class are above the decorator.
    keyword = module.text[place : place + len("class")]
    return Edit(place, place + len(keyword), f"{line}{module.newline}{keyword}")


def can_delete_lines_of(module: Module, statement: cst.CSTNode) -> bool:
    """Return whether the lines of a definition or statement can be removed.

    The lines must not contain any other statement. The block around the lines must contain another statement, so that
    the block is not empty after the removal.
    """
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1:
        return False
    return len(getattr(module.parents[statement], "body", ())) > 1


def delete_definition(module: Module, statement: cst.CSTNode) -> Edit:
    """Return the edit that removes a definition with its lines and the blank lines above it.

    Comments above the definition stay, because they may also describe other statements.
    """
    lines = delete_lines_of_statement(module, statement)
    return delete_line_range(module, lines.start, lines.end)


def delete_line_range(module: Module, start: int, end: int) -> Edit:
    """Return the edit that removes whole lines, and the blank lines above these lines.

    At the start of a block, the edit also removes the blank lines below the removed lines.
    """
    while start > 0:
        above = module.line_start(start - 1)
        if module.text[above:start].strip():
            break
        start = above
    if module.text[:start].rstrip().endswith(":"):
        while end < len(module.text) and not module.text[end : module.line_end(end)].strip():
            end = module.line_end(end)
    return Edit(start, end, "")


def start_of_comments_above(module: Module, offset: int, indent: str) -> int:
    """Return the start of the comment lines directly above ``offset``.

    The result is ``offset`` if no comment is directly above ``offset``. The result is also ``offset`` if the comment
    begins in the first line of the file, because such a comment describes the file.
    """
    above = offset
    while above > 0 and module.text.startswith(f"{indent}#", module.line_start(above - 1)):
        above = module.line_start(above - 1)
    return above if above > 0 else offset


def insert_at_start_of_block(
    module: Module, header: cst.CSTNode, block: cst.BaseSuite, lines: Sequence[str]
) -> Edit | None:
    """Return the edit that inserts lines at the start of a block, above the comments of its first statement.

    Args:
        module: the module of the block.
        header: the last expression in the header of the block, such as the iterable of a ``for``.
        block: the block.
        lines: the lines, with one tab for each level of indentation inside the block.

    Returns:
        The edit. The result is ``None`` if ``lines`` has several lines, and the block is on the line of its header, as
        in ``if x: return y``.
    """
    first = module.span(block.body[0])[0]
    if isinstance(block, cst.SimpleStatementSuite):
        return Edit(first, first, f"{lines[0]}; ") if len(lines) == 1 else None
    indent = module.indentation(first)
    step = "\t" if "\t" in indent else "    "
    text = "".join(f"{indent}{line.replace(chr(9), step)}{module.newline}" for line in lines)
    top, offset = module.line_end(module.span(header)[1]), module.line_start(first)
    while offset > top and module.text[module.line_start(offset - 1) : offset].lstrip().startswith("#"):
        offset = module.line_start(offset - 1)
    return Edit(offset, offset, text)


def split_tuple_assignment(
    module: Module, code_style: CodeStyle, statement: cst.CSTNode, edits: Sequence[Edit]
) -> tuple[Edit, ...] | None:
    """Return the edit that applies ``edits``, and splits ``a, b = a.to(device), b.to(device)`` into two assignments.

    A comment on the line stays behind the last assignment. The result is ``None``, and the assignment is not split, in
    any of these cases:

    * The edited line is short enough.
    * The statement has several lines, or shares a line with another statement.
    * The line has a comment for a tool, such as ``# noqa``.
    * One assignment may change a value that the other assignment reads.
    """
    line = module.parents[statement]
    match statement:
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Tuple(elements=names))], value=cst.Tuple(elements=values)
        ) if len(names) == len(values):
            pairs = [(name.value, value.value) for name, value in zip(names, values, strict=True)]
        case _:
            return None
    start, end = module.span(statement)
    is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    text = module.text[start:end]
    longest = code_style.longest_line(module.text)
    rest = module.text[end : module.line_end(end - 1)].rstrip()
    is_long = len(module.indentation(start) + apply_edits_in_span(module.text, (start, end), edits) + rest) > longest
    if not (is_alone and is_long) or NEWLINE.search(text) or _PRAGMA.search(rest):
        return None
    bound: set[str] = set()
    for name, value in pairs:
        if not isinstance(name, cst.Name) or bound & {one.value for one in find_nodes(value, cst.Name)}:
            return None
        bound.add(name.value)
    lines = []
    for name, value in pairs:
        span = module.span(value)
        inside = [one for one in edits if span[0] <= one.start <= one.end <= span[1]]
        lines.append(f"{module.source(name).strip()} = {apply_edits_in_span(module.text, span, inside)}")
    return (Edit(start, end, (module.newline + module.indentation(start)).join(lines)),)
