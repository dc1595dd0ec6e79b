"""Recognise loops that only collect values of samples, and check whether samples may be read before the loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.effects import side_effect_message
from chirp_migrate.analysis.dataflow.origins import assigned_values_and_annotations
from chirp_migrate.analysis.dataflow.symbolic import block_statements, else_statements
from chirp_migrate.analysis.dataflow.with_blocks import swallows_no_exceptions
from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.queries import dotted_source, find_nodes_in_scope, function_parameters

_FRESH = re.compile(
    r"builtins\.(list|dict|set|int|float|bytearray)|collections\.(Counter|defaultdict|OrderedDict|deque)"
    r"|(numpy|torch)\.(zeros|ones|empty|full|eye|array|tensor)"
)
_GROWING = frozenset({"append", "add", "extend", "update"})
_SCOPES = (cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.Module)


def has_only_collecting_statements(statements: Sequence[cst.CSTNode]) -> bool:
    """Return whether all statements are assignments, ``+=``, ``pass`` or calls such as ``labels.append(y)``.

    An ``if`` counts, too, if all statements in the ``if`` have these forms.
    """
    return all(map(_is_collecting, statements))


def _is_collecting(statement: cst.CSTNode) -> bool:
    if isinstance(statement, cst.If):
        return has_only_collecting_statements([*block_statements(statement.body), *else_statements(statement)])
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return all(isinstance(small, cst.Pass) or _target_and_values(small) is not None for small in statement.body)


def _target_and_values(small: cst.CSTNode) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]] | None:
    """Return the targets and the values of an assignment, or the container and the value of a call such as ``append``.

    The result is ``None`` for any other statement.
    """
    match small:
        case cst.Assign():
            return [target.target for target in small.targets], [small.value]
        case cst.AugAssign():
            return [small.target], [small.value]
        case cst.Expr(
            value=cst.Call(func=cst.Attribute() as method, args=[cst.Arg(value=given, keyword=None, star="")])
        ):
            return ([method.value], [given]) if method.attr.value in _GROWING else None
    return None


def why_early_reading_is_noticeable(
    module: Module, loop: cst.For, statements: Sequence[cst.CSTNode], expressions: Iterable[cst.CSTNode]
) -> str | None:
    """Return why the program may behave differently if all samples are read before the first iteration of ``loop``.

    The result is ``None`` if the program provably behaves as before.

    Args:
        statements: the statements that stay in the body of the loop. Callers have checked these statements with
            :func:`has_only_collecting_statements`.
        expressions: the expressions that a rewrite evaluates before the loop. The body of the loop must not change the
            values of these expressions.
    """
    scope = module.enclosing_scope(loop)

    def is_own(node: cst.CSTNode) -> bool:
        name = dotted_source(node)
        return name is not None and _has_only_new_values(module, scope, name)

    early = {str(dotted_source(part)) for one in expressions for part in find_nodes(one, cst.Name, cst.Attribute)}
    every = [one for statement in statements for one in walk_code(statement)]
    for line in (one for one in every if isinstance(one, cst.SimpleStatementLine | cst.SimpleStatementSuite)):
        for small in line.body:
            targets, values = _target_and_values(small) or ([], [])
            problems = (_target_problem(module, scope, small, target, early) for target in targets)
            problem = next(filter(None, problems), None) or side_effect_message(module, values, is_own)
            if problem is not None:
                return problem
    tests = [one.test for one in every if isinstance(one, cst.If)]
    return side_effect_message(module, tests, is_own) or _handler_problem(module, loop)


def _target_problem(
    module: Module, scope: cst.CSTNode, small: cst.CSTNode, target: cst.BaseExpression, early: set[str]
) -> str | None:
    if isinstance(small, cst.Assign) and isinstance(target, cst.Name):
        return f"the loop assigns `{target.value}`" if target.value in early else None
    container = target
    computed: Sequence[cst.CSTNode] = ()
    match target:
        case cst.Subscript(value=container, slice=computed):
            pass
        case cst.Call(func=cst.Attribute(value=container, attr=cst.Name(value="setdefault")), args=computed):
            pass
    problem = side_effect_message(module, computed)
    if problem is not None:
        return problem
    name = dotted_source(container)
    if name in early:
        return f"the loop changes `{name}`"
    if name is None or not _has_only_new_values(module, scope, name):
        shown = module.source(container).strip()
        return f"`{shown}` is not created right before the loop, so other code could read partial data after an error"
    return None


def _has_only_new_values(module: Module, scope: cst.CSTNode, name: str) -> bool:
    """Return whether the code of a scope assigns only new containers or numbers to ``name``."""
    if name in function_parameters(scope):
        return False
    shared: list[cst.Global | cst.Nonlocal] = find_nodes_in_scope(scope, cst.Global, cst.Nonlocal)
    if any(item.name.value == name for one in shared for item in one.names):
        return False
    values = assigned_values_and_annotations(module, scope, name)[0]
    return bool(values) and all(origin.part is None and _creates_new_object(module, origin.value) for origin in values)


def _creates_new_object(module: Module, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.List | cst.Dict | cst.Set | cst.ListComp | cst.DictComp | cst.SetComp):
        return True
    if isinstance(value, cst.Integer | cst.Float):
        return True
    if isinstance(value, cst.BinaryOperation):
        return _creates_new_object(module, value.left) or _creates_new_object(module, value.right)
    return is_call_of(module, value, _FRESH)


def _handler_problem(module: Module, loop: cst.For) -> str | None:
    """Return why code around the loop may catch an error in the loop and use the items collected so far; else None."""
    for ancestor in module.ancestors(loop):
        if isinstance(ancestor, _SCOPES):
            return None
        if isinstance(ancestor, cst.Try | cst.TryStar):
            return "a `try` surrounds the loop, so code may read incomplete data after an error in the loop"
        if isinstance(ancestor, cst.With) and not swallows_no_exceptions(module, ancestor):
            return (
                "a `with` that may suppress errors surrounds the loop, so code may read incomplete data after an error"
            )
    return None
