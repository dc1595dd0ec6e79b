"""New module-level definitions: a free name and the place in front of the statement that needs them."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.module import Module
from chirp_migrate.plan import Edit


def free_name(module: Module, wish: str) -> str:
    """``wish``, with a number behind it if the module already uses that word."""
    words = set(re.findall(r"\w+", module.text))
    name, number = wish, 2
    while name in words:
        name, number = f"{wish}_{number}", number + 1
    return name


def insert_above(module: Module, node: cst.CSTNode, definition: str) -> Edit:
    """Insert ``definition`` above a statement and the comment lines that belong to it."""
    offset = module.line_start(module.span(node)[0])
    while offset > 0:
        above = module.line_start(offset - 1)
        if not module.text[above:offset].strip().startswith("#"):
            break
        offset = above
    text = definition.replace(module.newline, "\n").replace("\n", module.newline) + module.newline * 3
    return Edit(offset, offset, text)
