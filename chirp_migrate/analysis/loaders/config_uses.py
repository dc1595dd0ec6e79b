"""Whether a configuration is only looked up in, or somewhere taken as a whole, so that another key would show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from chirp_migrate.syntax.module import UnparsableModule, syntax_tree
from chirp_migrate.syntax.project import Project

_NAME = re.compile(r"\w*config", re.IGNORECASE)
#: Methods of a dict that show, or give away, more than what they are asked for.
_WHOLE = frozenset({"items", "keys", "values", "pop", "popitem", "clear", "fromkeys"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def taken_whole(project: Project) -> str | None:
    """The first use of anything called ``…config`` in the backend that is no look-up, copy, test or merge.

    A configuration may be given on under a name of this kind, also to functions of the backend.
    """
    trees = []
    for text in (*project.texts("config"), *project.texts("CONFIG")):
        try:
            trees.append(syntax_tree(text))
        except UnparsableModule:
            continue  # reported by whoever reads it
    known: dict[str, list[list[str]]] = {}
    for tree in trees:
        for name, parameters in _definitions(tree):
            known.setdefault(name, []).append(parameters)
    for tree in trees:
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if _is_config(node) and isinstance(getattr(node, "ctx", None), ast.Load):
                found = _use(node, parents, known)
                if found is not None:
                    return ast.unparse(found).partition("\n")[0]
    return None


def _definitions(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Functions, methods and classes that can be called, with the names of their parameters behind ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            yield node.name, _parameters(node)
        elif isinstance(node, ast.ClassDef):
            inits = (one for one in node.body if isinstance(one, _Function) and one.name == "__init__")
            yield from ((node.name, _parameters(one)) for one in inits)


def _parameters(function: _Function) -> list[str]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _is_config(node: ast.AST | None) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _NAME.fullmatch(name) is not None


def _use(node: ast.AST, parents: dict[ast.AST, ast.AST], known: dict[str, list[list[str]]]) -> ast.AST | None:
    """Where the value of ``node`` is taken as a whole; ``None`` when it is not."""
    parent = parents[node]
    if isinstance(parent, ast.BoolOp | ast.IfExp | ast.Dict):  # x or {}, {**x, …}
        merged = not isinstance(parent, ast.Dict) or any(
            key is None and value is node for key, value in zip(parent.keys, parent.values, strict=True)
        )
        return _use(parent, parents, known) if merged else parent
    if isinstance(parent, ast.Attribute):
        call = parents[parent]
        if parent.attr == "copy" and isinstance(call, ast.Call):
            return _use(call, parents, known)
        return parent if parent.attr in _WHOLE else None
    if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return None if all(map(_is_config, targets)) else parent
    if isinstance(parent, ast.keyword):
        call = parents[parent]
        return None if _NAME.fullmatch(parent.arg or "") and _called(call) in known else call
    if isinstance(parent, ast.Call) and node in parent.args:
        if isinstance(parent.func, ast.Attribute) and parent.func.attr == "update" and _is_config(parent.func.value):
            return None
        place, starred = parent.args.index(node), any(isinstance(one, ast.Starred) for one in parent.args)
        taking = [names[place : place + 1] for names in known.get(_called(parent), [])]
        same = bool(taking) and all(names and _NAME.fullmatch(names[0]) for names in taking)
        return None if same and not starred else parent
    if isinstance(parent, ast.Compare):
        asked = all(isinstance(one, ast.In | ast.NotIn | ast.Is | ast.IsNot) for one in parent.ops)
        return None if asked else parent
    looked_up = isinstance(parent, ast.Subscript) and parent.value is node
    tested = isinstance(parent, ast.If | ast.While | ast.Assert | ast.UnaryOp | ast.Expr)
    return None if looked_up or tested else parent


def _called(call: ast.AST) -> str:
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))
