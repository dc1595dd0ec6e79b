"""Find the values that code assigns to a name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.queries import (
    binding_scope,
    dotted_source,
    find_nodes_in_scope,
    function_parameters,
    target_value_pairs,
)


@dataclass(frozen=True)
class AssignedValue:
    """A value that is assigned to a name.

    If ``part`` is not None, the name gets the element of ``value`` at this position.
    """

    value: cst.BaseExpression
    part: int | None = None


@dataclass
class _AssignedValues:
    """The values that one scope assigns to a name."""

    values: list[AssignedValue] = field(default_factory=list)
    annotations: list[cst.BaseExpression] = field(default_factory=list)


def assigned_values_and_annotations(
    module: Module, scope: cst.CSTNode, name: str
) -> tuple[list[AssignedValue], list[cst.BaseExpression]]:
    """Return the values that assignments and ``with`` in ``scope`` give to ``name``, and the name's annotations."""
    given = module.once(_values_by_name, scope).get(name) or _AssignedValues()
    parameter = function_parameters(scope).get(name)
    written = None if parameter is None else parameter.annotation
    return list(given.values), given.annotations + ([] if written is None else [written.annotation])


def assigned_values(module: Module, node: cst.CSTNode) -> list[AssignedValue]:
    """Return the values assigned to a name or attribute; an empty list for other expressions."""
    name = dotted_source(node)
    return [] if name is None else assigned_values_and_annotations(module, assigning_scope(module, node, name), name)[0]


def assigning_scope(module: Module, node: cst.CSTNode, name: str) -> cst.CSTNode:
    """Return the scope whose assignments are the values of ``name``, mostly the scope that binds ``name``.

    The exception is a name of the module to which a function around ``node`` assigns a value, as in ``config.rate = 2``
    or after ``global``. For such a name, the result is this function.
    """
    scope = binding_scope(module, node, name)
    if not isinstance(scope, cst.Module):
        return scope
    functions = (ancestor for ancestor in module.ancestors(node) if isinstance(ancestor, cst.FunctionDef))
    return next(
        (function for function in functions if assigned_values_and_annotations(module, function, name)[0]), scope
    )


def _values_by_name(module: Module, scope: cst.CSTNode) -> dict[str, _AssignedValues]:
    """Return the values that a scope assigns to names.

    For a class, the result also contains the values that its methods assign, as in ``self.rate = 2``.
    """
    found: dict[str, _AssignedValues] = defaultdict(_AssignedValues)
    giving = (cst.AnnAssign, cst.Assign, cst.NamedExpr, cst.WithItem)
    for node in find_nodes(scope, *giving) if isinstance(scope, cst.ClassDef) else find_nodes_in_scope(scope, *giving):
        if isinstance(node, cst.AnnAssign):
            given = found[dotted_source(node.target) or ""]
            given.annotations.append(node.annotation.annotation)
            given.values += [AssignedValue(node.value)] if node.value is not None else []
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                for name, origin in _assigned_names(target.target, node.value):
                    found[name].values.append(origin)
        elif isinstance(node, cst.NamedExpr):
            found[dotted_source(node.target) or ""].values.append(AssignedValue(node.value))
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            found[dotted_source(node.asname.name) or ""].values.append(AssignedValue(node.item))
    return found


def _assigned_names(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str, AssignedValue]]:
    for one, given in target_value_pairs(target, value):
        if (name := dotted_source(one)) is not None:
            yield name, AssignedValue(given)
        for position, element in enumerate(one.elements if isinstance(one, cst.Tuple | cst.List) else ()):
            if (name := dotted_source(element.value)) is not None:
                yield name, AssignedValue(given, position)
