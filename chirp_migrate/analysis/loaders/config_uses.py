"""Checks of whether code only reads single keys of a configuration, so that a further key has no visible effect."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from chirp_migrate.syntax.module import UnparsableModule
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project

_NAME = re.compile(r"\w*config", re.IGNORECASE)
#: Methods of a dict that return more than one requested value.
_WHOLE = frozenset({"items", "keys", "values", "pop", "popitem", "clear", "fromkeys"})
#: Code that reads all attributes of an object, except of command-line arguments, which are no configuration.
_ALL_ATTRIBUTES = r"\b__dict__\b|\bvars\s*\((?!\s*\w*(?:args|opts?|options)\s*\))|\b(?:asdict|astuple)\s*\("


def first_whole_use(project: Project) -> str | None:
    """Return the first use of a name ``…config`` in the backend that is no look-up, copy, test or merge.

    Passing a configuration on under such a name, also to functions of the backend, is permitted.
    """
    outlines = []
    for text in (*project.texts("config"), *project.texts("CONFIG")):
        with contextlib.suppress(UnparsableModule):  # reported by the code that reads it
            outlines.append(Outline("", text))
    known: dict[str, list[list[str]]] = defaultdict(list)
    for outline in outlines:
        for name, parameters in _definitions(outline):
            known[name].append(parameters)
    attributes_are_read = project.holds(_ALL_ATTRIBUTES, "__dict__", "vars", "asdict", "astuple")
    for outline in outlines:
        for node in ast.walk(outline.tree):
            if attributes_are_read and isinstance(node, ast.Attribute) and _is_config(node) and _is_stored(node):
                return ast.unparse(node)
            if isinstance(node, ast.alias) and _is_renamed(node) and isinstance(outline.parents[node], ast.ImportFrom):
                return ast.unparse(node)
            if _is_config(node) and isinstance(getattr(node, "ctx", None), ast.Load):
                found = _whole_use(node, outline.parents, known)
                if found is not None:
                    return ast.unparse(found).partition("\n")[0]
    return None


def _definitions(outline: Outline) -> Iterator[tuple[str, list[str]]]:
    """Return the functions, methods and classes with the names of their parameters after ``self``."""
    for function in outline.functions:
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        yield function.name, names
        owner = outline.parents[function]
        if function.name == "__init__" and isinstance(owner, ast.ClassDef):
            yield owner.name, names


def _is_config(node: ast.AST | None) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _NAME.fullmatch(name) is not None


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_renamed(imported: ast.alias) -> bool:
    """Return whether a configuration is imported under a name that does not show that it is one."""
    return _NAME.fullmatch(imported.name) is not None and _NAME.fullmatch(imported.asname or imported.name) is None


def _whole_use(
    node: ast.AST, parents: Mapping[ast.AST, ast.AST], known: Mapping[str, list[list[str]]]
) -> ast.AST | None:
    """Return where code uses the value of ``node`` as a whole; ``None`` if it does not."""
    parent = parents[node]
    match parent:
        case ast.BoolOp() | ast.IfExp():  # config or {}
            return _whole_use(parent, parents, known)
        case ast.Dict(keys=keys, values=values):  # {**config, …}
            merged = any(key is None and value is node for key, value in zip(keys, values, strict=True))
            return _whole_use(parent, parents, known) if merged else parent
        case ast.Attribute(attr="copy") if isinstance(parents[parent], ast.Call):
            return _whole_use(parents[parent], parents, known)
        case ast.Attribute(attr=name):
            return parent if name in _WHOLE else None
        case ast.Assign(targets=targets):
            return None if all(map(_is_config, targets)) else parent
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return None if _is_config(target) else parent
        case ast.keyword(arg=keyword):
            call = parents[parent]
            callees = known.get(_name_of_callee(call), [])
            is_kept = _NAME.fullmatch(keyword or "") and callees and all(keyword in names for names in callees)
            return None if is_kept else call
        case ast.Call(func=ast.Attribute(value=owner, attr="update")) if node in parent.args and _is_config(owner):
            return None
        case ast.Call(args=args) if node in args:
            place, starred = args.index(node), any(isinstance(argument, ast.Starred) for argument in args)
            taking = [names[place : place + 1] for names in known.get(_name_of_callee(parent), [])]
            same = bool(taking) and all(names and _NAME.fullmatch(names[0]) for names in taking)
            return None if same and not starred else parent
        case ast.Compare(ops=operators):
            asked = all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in operators)
            return None if asked else parent
        case ast.Subscript(value=value) if value is node:
            return None
        case ast.If() | ast.While() | ast.Assert() | ast.UnaryOp() | ast.Expr():
            return None
    return parent


def _name_of_callee(call: ast.AST) -> str:
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))
