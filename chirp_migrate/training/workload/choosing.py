"""Select training functions with ``-k EXPRESSION``, as in pytest, and describe them for ``--list``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from chirp_migrate.console.text import pluralize, shorten_list
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.workload.entry_points import (
    DATA_PARAMETERS,
    DiscoveredEntryPoints,
    EntryPoint,
    TrainingSource,
    WorkloadSizes,
    training_function_arguments,
)


def parse_expression(text: str) -> Callable[[str], bool]:
    """Convert an expression such as ``k_fold and not backup`` to a function that checks whether a name matches.

    An expression combines parts of names with ``and``, ``or``, ``not`` and brackets. A name matches a part if the name
    contains this part. The case of letters does not matter. A part that is not a dotted Python name must be in quotes.

    Raises:
        ValueError: the expression is invalid.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _matches_expression(tree, "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            "must be parts of entry point names, combined by `and`, `or`, `not` and brackets, such as "
            '"k_fold and not backup"'
        ) from None
    return lambda name: _matches_expression(tree, name.lower())


def _matches_expression(node: ast.expr, name: str) -> bool:
    match node:
        case ast.BoolOp():
            parts = [_matches_expression(operand, name) for operand in node.values]
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.UnaryOp(op=ast.Not()):
            return not _matches_expression(node.operand, name)
        case ast.Constant(value=str(part)):
            return part.lower() in name
        case ast.Name() | ast.Attribute():
            return ast.unparse(node).lower() in name
    raise ValueError(ast.dump(node))


def select_entry_points(discovery: DiscoveredEntryPoints, expression: str | None) -> DiscoveredEntryPoints:
    """Return the entry points (training functions or scripts) whose labels (short unique names) match the expression.

    If ``expression`` is None, the result contains all entry points.

    Raises:
        UsageProblem: no label matches.
    """
    if expression is None:
        return discovery
    fits = parse_expression(expression)
    entries = tuple(entry for entry in discovery.entry_points if fits(entry.label))
    if not entries:
        labels = [entry.label for entry in discovery.entry_points]
        raise UsageProblem(
            f"-k {expression!r} matches none of {pluralize(len(labels), 'entry point')}: {shorten_list(labels, 4)} "
            "(see `chirp-migrate verify --list`)."
        )
    return replace(discovery, entry_points=entries)


def entry_point_call_text(entry: EntryPoint, model: str, sizes: WorkloadSizes) -> str:
    """Return the text that ``--list`` prints for an entry point.

    The text is the call of a training function as Python code, the command line of a script, or a description of a call
    that the workload function returns.
    """
    if entry.source is TrainingSource.SCRIPT:
        return " ".join(entry.script)
    if entry.source is TrainingSource.HOOK:
        return f"the call {entry.name!r} that {entry.hook} returns"
    options: dict[str, object] = training_function_arguments(sizes)
    owner, _, method = entry.name.rpartition(".")
    named = model.rpartition(":")[2]
    values = {**{name: str(value) for name, value in options.items()}, "model_class": named, "config": "config"}
    arguments = [
        f"{name}={values[name]}" if name in values else name
        for name in entry.parameters
        if name in values or name in DATA_PARAMETERS
    ]
    call = f"{method}({', '.join(arguments)})"
    return f"{owner}({named}, {sizes.classes}, config).{call}" if owner else call
