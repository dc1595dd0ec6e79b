"""The text of a lambda as that of a function: its parameters, and the lines that return what it gives."""

from __future__ import annotations

import ast

import libcst as cst

from chirp_migrate.edits.lifted import Lifted
from chirp_migrate.edits.move_definition import in_string, whole_span
from chirp_migrate.edits.signatures import parameters_offset
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import edited
from chirp_migrate.syntax.module import Module


def lambda_parameters(lifted: Lifted) -> str:
    """The parameters of the function that a lambda becomes.

    Raises:
        NotMovable: see :func:`~chirp_migrate.edits.signatures.parameter_edits`.
    """
    module, node = lifted.module, lifted.node
    start = parameters_offset(module, node)
    return edited(module.text, (start, max(start, module.span(node.params)[1])), lifted.parameters())


def returned_lines(module: Module, node: cst.Lambda, indent: str) -> list[str]:
    """Lines of the function: comments in front of the lambda's body, and its ``return``."""
    comments = [line.strip() for line in module.tree.code_for_node(node.colon).splitlines()[:-1]]
    comments = [line.lstrip(": ") for line in comments if "#" in line]
    body = _moved_body(module, node, indent)
    try:
        block = ast.parse(f"def f():\n{indent}return {body}").body[0]
        alone = isinstance(block, ast.FunctionDef) and len(block.body) == 1
    except SyntaxError:
        alone = False
    return [*comments, f"return {body}" if alone else f"return ({body})"]


def _moved_body(module: Module, node: cst.Lambda, indent: str) -> str:
    """The body as written, its further lines moved with the first one; strings of several lines are kept."""
    start, end = whole_span(module, node.body)
    lines = [at for at in module.line_starts if start < at < end and not in_string(module, at)]
    widths = {at: len(module.indentation(at)) for at in lines if "\t" not in module.indentation(at)}
    column = start - module.line_start(start)
    if not widths:
        return module.text[start:end]
    if min(widths.values()) > column:
        shift = len(f"{indent}return ") - column
    else:
        shift = len(indent) - min(*widths.values(), len(module.indentation(start)))
    edits = (Edit(at, at + width, " " * max(0, width + shift)) for at, width in widths.items())
    return edited(module.text, (start, end), edits)
