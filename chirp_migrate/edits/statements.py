"""Edits that remove whole statements, and one that declares what a class does."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module


def line_deletion(module: Module, statement: cst.CSTNode) -> Edit:
    """Remove a statement with its lines."""
    start, end = module.span(statement)
    return Edit(module.line_start(start), module.line_end(end - 1), "")


def class_decorator(module: Module, style: CodeStyle, node: cst.ClassDef, name: str, arguments: Sequence[str]) -> Edit:
    """Put ``@name(arguments)`` above a class that has no decorator, one argument a line where it is long."""
    line = call_text(module, style, f"@{name}", arguments)
    place = module.span(node)[0]
    # With the keyword: what others insert above the class stays above the decorator, too.
    keyword = module.text[place : place + len("class")]
    return Edit(place, place + len(keyword), f"{line}{module.newline}{keyword}")


def is_dispensable(module: Module, statement: cst.CSTNode) -> bool:
    """Whether the lines of a definition, or a line of statements, can go: nothing else is in them, but in the block."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1:
        return False
    return len(getattr(module.parents[statement], "body", ())) > 1


def block_deletion(module: Module, statement: cst.CSTNode) -> Edit:
    """Remove a definition with its lines and the blank lines above it.

    Comments above it stay: they are the user's words, and may be about more than this statement.
    """
    edit = line_deletion(module, statement)
    start, end = edit.start, edit.end
    while start > 0:
        above = module.line_start(start - 1)
        if module.text[above:start].strip():
            break
        start = above
    if module.text[:start].rstrip().endswith(":"):
        # First in its block: the blank lines behind it go too, so that the block does not open with them.
        while end < len(module.text) and not module.text[end : module.line_end(end)].strip():
            end = module.line_end(end)
    return Edit(start, end, "")
