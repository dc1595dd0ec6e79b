"""Read properties of LibCST nodes: dotted names, parameters, bindings of a scope, and the code of a scope."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum

import libcst as cst

from chirp_migrate.syntax.module import Module, Node, code_children, walk_code
from chirp_migrate.syntax.scopes import TARGETS

_DEFINITIONS = frozenset({cst.FunctionDef, cst.ClassDef, cst.Lambda})
#: A line break after an opening bracket or before a closing bracket, with the blanks around the line break.
_BREAK_IN_BRACKETS = re.compile(r"(?<=[(\[{])[ \t]*[\r\n]\s*|[ \t]*[\r\n]\s*(?=[)\]}])")


def dotted_source(node: cst.CSTNode) -> str | None:
    """Return ``name`` or ``name.attribute…`` without spaces; ``None`` for any other expression."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = dotted_source(node.value)
        return None if owner is None else f"{owner}.{node.attr.value}"
    return None


def normalized_source(module: Module, node: cst.CSTNode) -> str:
    """Return the source of a statement or expression as ``ast.unparse`` writes it."""
    source = module.source(node).strip()
    return ast.unparse(ast.parse(f"({source})" if isinstance(node, cst.BaseExpression) else source))


def one_line_source(module: Module, node: cst.CSTNode) -> str:
    """Return the source of a node in one line, with single spaces, for messages."""
    return " ".join(_BREAK_IN_BRACKETS.sub("", module.source(node)).split())


def is_name(node: cst.CSTNode | None, *values: str) -> bool:
    """Return whether a node is a plain name in ``values``.

    In LibCST, ``None``, ``True`` and ``False`` are names, so ``is_name(node, "None")`` detects ``None``.
    """
    return isinstance(node, cst.Name) and node.value in values


def is_integer(node: cst.CSTNode | None, value: str) -> bool:
    """Return whether a node is the integer literal ``value``."""
    return isinstance(node, cst.Integer) and node.value == value


def is_self_attribute(node: cst.CSTNode | None, *names: str) -> bool:
    """Return whether a node is an attribute of ``self``; with ``names``, only an attribute with one of these names."""
    match node:
        case cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=name)):
            return not names or name in names
    return False


def leading_variable_name(node: cst.CSTNode) -> str:
    """Return the variable at the beginning of an expression, such as ``a`` for ``a.b[0]``.

    The result is "" for other expressions.
    """
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def lines_in_strings(module: Module) -> set[int]:
    """Return the offset of each line start that is inside a string."""
    strings = map(module.span, module.find(cst.SimpleString, cst.FormattedString))
    return {at for start, end in strings for at in module.lines_inside(start, end)}


def is_in_fstring(module: Module, node: cst.CSTNode) -> bool:
    """Return whether an expression is part of an f-string."""
    return any(isinstance(one, cst.FormattedStringExpression) for one in module.ancestors(node))


def is_printed_by_fstring(module: Module, start: int, end: int) -> bool:
    """Return whether an f-string prints the source of the code from ``start`` to ``end``, as ``f"{value=}"`` does."""
    spans = module.once(_printed_spans)
    return any(first <= start and end <= last for first, last in spans)


def _printed_spans(module: Module) -> list[tuple[int, int]]:
    printing = (one for one in module.find(cst.FormattedStringExpression) if one.equal is not None)
    return [module.span(one) for one in printing]


def is_super_call(node: cst.CSTNode) -> bool:
    """Return whether a node is a call of ``super``."""
    return isinstance(node, cst.Call) and is_name(node.func, "super")


def is_docstring(statement: cst.CSTNode) -> bool:
    """Return whether a statement is a string and nothing else."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString())]):
            return True
    return False


def called_method_name(node: cst.CSTNode) -> str:
    """Return the name of the method that the call ``node`` calls; "" if ``node`` is not a method call."""
    match node:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))):
            return name
    return ""


def find_names(node: cst.CSTNode, *names: str) -> list[cst.CSTNode]:
    """Return every occurrence of one of ``names`` at or below a node, in order of the text."""
    return [one for one in walk_code(node) if is_name(one, *names)]


def nodes_in_scope(scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes below ``scope``, without white space, commas and brackets.

    Inner functions, classes and lambdas are yielded, but the nodes below them are not.
    """
    pending = list(code_children(scope))
    while pending:
        current = pending.pop()
        yield current
        if type(current) not in _DEFINITIONS:
            pending += code_children(current)


def find_nodes_in_scope(scope: cst.CSTNode, *types: type[Node]) -> list[Node]:
    """Return the nodes of :func:`nodes_in_scope` that have exactly these types."""
    return [node for node in nodes_in_scope(scope) if type(node) in types]  # type: ignore[misc]


def function_parameters(scope: cst.CSTNode) -> dict[str, cst.Param]:
    """Return all parameters of a function or lambda by name, including ``*args`` and ``**kwargs``.

    The result is an empty dictionary for other nodes.
    """
    if not isinstance(scope, cst.FunctionDef | cst.Lambda):
        return {}
    found = [*scope.params.posonly_params, *scope.params.params, *scope.params.kwonly_params]
    found += [one for one in (scope.params.star_arg, scope.params.star_kwarg) if isinstance(one, cst.Param)]
    return {one.name.value: one for one in found}


def contains_node(module: Module, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
    """Return whether the node ``inner`` is inside the node ``outer``, by their offsets in the text."""
    start, end = module.span(outer)
    return start <= module.span(inner)[0] < end


class NameRole(Enum):
    """The role of a name at one place in the code.

    ``READ``: the code uses the value of the name. ``BOUND``: the name gets a value, alone or as a part of a target such
    as ``a, b``. ``CHANGED``: the name is the target of ``+=`` or a similar statement. ``DELETED``: the code deletes the
    name. ``DECLARED``: a definition, parameter or import has the name. ``SHARED``: the code declares the name
    ``global`` or ``nonlocal``. ``LABEL``: the name belongs to an attribute or keyword, and not to a variable.
    """

    READ = "read"
    BOUND = "bound"
    CHANGED = "changed"
    DELETED = "deleted"
    DECLARED = "declared"
    SHARED = "shared"
    LABEL = "label"


#: For each type of node: the field that contains a name, and the role of the name. In all other fields, the role is
#: READ.
_MENTIONS: dict[type[cst.CSTNode], tuple[str, NameRole]] = {
    **{kind: (field, NameRole.BOUND) for kind, field in TARGETS.items()},
    cst.AugAssign: ("target", NameRole.CHANGED),
    cst.Del: ("target", NameRole.DELETED),
    **dict.fromkeys((cst.Param, cst.FunctionDef, cst.ClassDef, cst.ImportAlias), ("name", NameRole.DECLARED)),
    cst.ImportFrom: ("module", NameRole.DECLARED),
    cst.NameItem: ("name", NameRole.SHARED),
    cst.Attribute: ("attr", NameRole.LABEL),
    cst.Arg: ("keyword", NameRole.LABEL),
    cst.MatchKeywordElement: ("key", NameRole.LABEL),
}
_PARTS = frozenset({cst.Element, cst.StarredElement, cst.Tuple, cst.List})


def name_role(module: Module, name: cst.CSTNode) -> NameRole:
    """Return the role that a name or attribute has in the surrounding code."""
    parents = module.parents
    child, parent = name, parents[name]
    while type(parent) in _PARTS:
        child, parent = parent, parents[parent]
    field, meaning = _MENTIONS.get(type(parent), ("", NameRole.READ))
    if not field or getattr(parent, field) is child:
        is_import = type(parent) is cst.AsName and isinstance(parents[parent], cst.ImportAlias)
        return NameRole.DECLARED if is_import else meaning
    while type(parent) is cst.Attribute:
        parent = parents[parent]
    return NameRole.DECLARED if type(parent) in (cst.ImportAlias, cst.ImportFrom) else NameRole.READ


def is_read(module: Module, name: cst.CSTNode) -> bool:
    """Return whether code uses the current value of a name or attribute; ``x += 1`` and ``del x`` are also uses."""
    return name_role(module, name) in (NameRole.READ, NameRole.CHANGED, NameRole.DELETED)


def methods_of(definition: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    """Return the methods of a class by name. The last of several methods with the same name counts, as in Python."""
    return {one.name.value: one for one in definition.body.body if isinstance(one, cst.FunctionDef)}


def methods_of_plain_class(definition: cst.ClassDef) -> dict[str, cst.FunctionDef] | None:
    """Return the methods of a class by name, if the class contains only methods and docstrings.

    The result is ``None`` for any other class, and for a class that defines two methods with the same name.
    """
    methods: dict[str, cst.FunctionDef] = {}
    for statement in definition.body.body:
        if isinstance(statement, cst.FunctionDef) and statement.name.value not in methods:
            methods[statement.name.value] = statement
        elif not is_docstring(statement):
            return None
    return methods


def bound_target(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the target that an assignment, a loop, ``as`` or similar code binds; ``None`` for any other node."""
    match node:
        case cst.AssignTarget() | cst.AnnAssign() | cst.AugAssign() | cst.NamedExpr() | cst.For() | cst.CompFor():
            return node.target
        case cst.AsName():
            return node.name
    return None


def keyword_arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Return the keyword arguments of a call."""
    return {one.keyword.value: one.value for one in call.args if one.keyword is not None}


def call_argument(call: cst.Call, position: int, keyword: str = "") -> cst.BaseExpression | None:
    """Return the argument at a position, or with a keyword.

    The result is ``None`` if the call has no such argument, or a starred argument (``*args``) at this position.
    """
    for place, one in enumerate(call.args):
        if one.keyword.value == keyword if one.keyword else place == position and not one.star:
            return one.value
    return None


def target_value_pairs(
    target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Yield each target of an assignment with its value. ``a, b = x, y`` yields two pairs."""
    displays = cst.Tuple | cst.List
    if isinstance(target, displays) and isinstance(value, displays) and len(target.elements) == len(value.elements):
        for one, other in zip(target.elements, value.elements, strict=True):
            yield from target_value_pairs(one.value, other.value)
    else:
        yield target, value


def binding_scope(module: Module, node: cst.CSTNode, name: str) -> cst.CSTNode:
    """Return the scope that binds ``name`` at ``node``.

    For ``self.…``, this scope is the class around ``node``. For other names, it is the nearest scope with a binding.
    Without such a class or scope, the result is the module.
    """
    first = name.partition(".")[0]
    if first == "self" and "." in name:
        return module.enclosing_class(node) or module.tree
    found = module.scopes.lookup(first, node)
    return module.tree if found is None else found.scope.node


def is_super_init(statement: cst.CSTNode) -> bool:
    """Return whether a statement is ``super().__init__()``, ``Dataset.__init__(self)`` or similar.

    The result is False if the call has an argument other than ``self``.
    """
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=cst.Attribute(value=of), args=given) as call)]):
            known = called_method_name(call) == "__init__" and (is_super_call(of) or is_name(of, "Dataset"))
            return known and all(is_name(one.value, "self") for one in given)
    return False


def find_name_inspecting_call(module: Module, scope: cst.CSTNode) -> str | None:
    """Return the built-in function, such as ``locals``, by which ``scope`` inspects its own names; else None."""
    for word in ("eval", "exec", "dir", "locals", "vars"):
        for name in module.named(word):
            call = module.parents[name]
            if not isinstance(call, cst.Call) or call.func is not name or module.enclosing_scope(call) is not scope:
                continue
            asks = word in ("eval", "exec") or not call.args
            if asks and module.scopes.lookup(word, call) is None:
                return word
    return None
