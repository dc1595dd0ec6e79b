"""Edits that remove whole statements."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.module import Module
from chirp_migrate.plan import Edit


def line_deletion(module: Module, statement: cst.CSTNode) -> Edit:
    """Remove a statement with its lines."""
    start, end = module.span(statement)
    return Edit(module.line_start(start), module.line_end(end - 1), "")


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
