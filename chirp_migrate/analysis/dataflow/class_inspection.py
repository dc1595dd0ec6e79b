"""Find places where a project distinguishes objects by their class, or sets attributes on the class of an object."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from chirp_migrate.analysis.dataflow.function_flow import find_class_mutation_on_lines, object_of_class_expression
from chirp_migrate.syntax.module import UnparsableModule, walk_tree
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project, cached_until_text_changes

_CLASS_OF = re.compile(r"\btype\b|\b__class__\b|\b__func__\b")
_CLASS_WORDS = ("type", "__class__", "__func__")
#: Functions that print a class or read an attribute of the class.
_SHOWS = frozenset(
    {"print", "str", "repr", "getattr", "hasattr", "format", "debug", "info", "warning", "error", "warn"}
)
#: Attributes with equal values in two classes that the same ``class`` statement creates.
_EQUAL_ATTRIBUTES = frozenset({"__name__", "__module__", "__doc__"})


@cached_until_text_changes
def find_class_used_as_value(project: Project) -> str | None:
    """Return the first place (``path:line``) that uses the class of an object as a value, as in ``counts[type(x)]``.

    The result is None if there is no such place.

    A comparison with the class of another object also counts. A call of a method of the class does not count. Code that
    reads or prints the name of the class does not count. A comparison with a class that the code names, as in
    ``type(x) is Birds``, does not count. In ``raise`` and ``assert``, only comparisons, calls and attributes of the
    class count.
    """
    for path, text in project.matching(_CLASS_OF, *_CLASS_WORDS):
        for line, _ in _class_values(text):
            return f"{path}:{line}"
    return None


@cached_until_text_changes
def find_class_mutation(project: Project) -> str | None:
    """Return a place (``path:line``) that may set an attribute on the class of an object, as in ``type(x).count = 0``.

    Code that may read ``__qualname__`` of the class of an object counts, too, because a rewrite that moves the class
    changes this name. The result is None if there is no such place.
    """
    lines = {}
    for path, text in project.matching(_CLASS_OF, *_CLASS_WORDS):
        found = _class_values(text)
        for line, is_known in found:
            if not is_known:
                return f"{path}:{line}"
        lines[path] = {line for line, _ in found}
    return find_class_mutation_on_lines(project, lines)


@lru_cache(maxsize=1024)
def _class_values(text: str) -> tuple[tuple[int, bool], ...]:
    """Return the number of each line that uses the class of an object as a value, with a flag.

    The flag is True if the line names the object, as in ``type(x)``, and False if not, as in ``map(type, objects)``.
    In a text that is not Python, every line with a word such as ``type`` counts, with the flag False.
    """
    try:
        outline = Outline("", text)
    except UnparsableModule:
        return tuple((text.count("\n", 0, one.start()) + 1, False) for one in _CLASS_OF.finditer(text))
    found = []
    for node in walk_tree(outline.tree):
        line = int(getattr(node, "lineno", 1))
        if _names_class_of_any(node, outline):
            found.append((line, False))
        expression = object_of_class_expression(node)
        if expression is None or isinstance(expression, ast.Constant) or _is_own_or_caught(expression, outline):
            continue
        if _is_value(node, outline):
            found.append((line, True))
    return tuple(found)


def _names_class_of_any(node: ast.AST, outline: Outline) -> bool:
    """Return whether code may use the class of an object without a name for the object, as in ``map(type, objects)``.

    A string "__class__" and an attribute ``__func__`` count, too.
    """
    match node:
        case ast.Constant(value="__class__") | ast.Attribute(attr="__func__"):
            return True
        case ast.Attribute(value=ast.Name(id="builtins"), attr="type"):
            return True
        case ast.Name(id="type", ctx=ast.Load()) if "type" not in outline.bound:
            pass
        case _:
            return False
    match outline.parents[node]:
        case ast.Call(func=function) if function is node:
            return False
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass" | "cast")) | ast.ClassDef() | ast.Subscript():
            return False
        case ast.Attribute() | ast.Compare() | ast.Tuple() | ast.BinOp():  # `type.__call__`, `isinstance(x, (type, …))`
            return False
        case ast.arg() | ast.AnnAssign() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return False
    return True


def _is_own_or_caught(expression: ast.expr, outline: Outline) -> bool:
    """Return whether an expression is ``self`` or ``cls`` in a method, or the exception of an ``except`` block."""
    name = expression.id if isinstance(expression, ast.Name) else ""
    for around in outline.ancestors(expression) if name else ():
        if isinstance(around, ast.ExceptHandler) and around.name == name:
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef) and name in ("self", "cls"):
            given = [one.arg for one in (*around.args.posonlyargs, *around.args.args)]
            if name in given:
                return given[0] == name and isinstance(outline.parents[around], ast.ClassDef)
    return False


def _is_value(node: ast.AST, outline: Outline) -> bool:
    """Return whether code uses the class of an object as a value."""
    parent = outline.parents[node]
    match parent:
        case ast.Attribute(attr=name, ctx=ast.Load()):
            around = outline.parents[parent]
            is_called = isinstance(around, ast.Call) and around.func is parent
            return name not in _EQUAL_ATTRIBUTES and not (is_called and name != "mro" and not name.startswith("__"))
        case ast.FormattedValue() | ast.Expr():
            return False
        case ast.Call(func=function) if function is node:
            # After a rewrite, the constructor of the class also requires captured values.
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _SHOWS:
            return False
        case ast.Call(func=ast.Name(id="issubclass"), args=[first, *_]) if first is node:
            return False
        case ast.Compare(left=left, comparators=others):
            return not all(one is node or _is_named(one) or _is_own_class(one, outline) for one in (left, *others))
    return not any(isinstance(around, ast.Raise | ast.Assert) for around in outline.ancestors(node))


def _is_own_class(node: ast.expr, outline: Outline) -> bool:
    """Return whether an expression is the class of ``self`` in a method."""
    expression = object_of_class_expression(node)
    return isinstance(expression, ast.Name) and expression.id == "self" and _is_own_or_caught(expression, outline)


def _is_named(node: ast.expr) -> bool:
    """Return whether an expression is a name such as ``Birds`` or ``data.Birds``, or a tuple, list or set of names."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_named, node.elts))
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and node.attr != "__class__")
