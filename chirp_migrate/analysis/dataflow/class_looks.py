"""Places where a project distinguishes objects by their class, or puts functions where Python makes methods of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from chirp_migrate.syntax.module import UnparsableModule, syntax_tree
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project

__all__ = [
    "place_of_class_value",
    "place_of_function_key",
    "place_of_method_made",
    "place_of_type_look",
    "receivers",
]

_CLASS_OF = re.compile(r"\btype\s*\(|\b__class__\b")
_CLASS_WORDS = ("type", "__class__")
#: Calls that print a class, construct an object of it or read an attribute.
_SHOWS = frozenset(
    {"print", "str", "repr", "getattr", "hasattr", "format", "debug", "info", "warning", "error", "warn"}
)
#: A function that is assigned by name to an attribute of a class, or bound to an object as its method.
_METHOD_MADE = (
    r"(?m)(?:\bcls|\btype\s*\([^()\n]*\)|\b__class__|(?<![\w.])_*[A-Z]\w*)\s*\.\s*\w+[ \t]*=[ \t]*"
    r"(?!(?:None|True|False)\b)[a-z_]\w*[ \t]*(?:#|$)"
    r"|\bsetattr\s*\(\s*(?:cls\b|type\s*\(|[\w.]*\b__class__\b|_*[A-Z]\w*\s*,)|\b__get__\s*\(|\bMethodType\b"
)
_METHOD_WORDS = ("cls", "type", "__class__", "setattr", "__get__", "MethodType")
#: Caches whose keys are objects, by their identity.
_WEAK = r"\bWeak(?:KeyDictionary|Set)\b"
_CACHES = frozenset({"lru_cache", "cache"})
_DEFINED = re.compile(r"\bdef\b")


def place_of_class_value(project: Project) -> str | None:
    """Return where a file uses the class of an object as a value (a key, or in a comparison), as ``path:line``.

    Reading an attribute of the class, constructing an object of it, showing it and comparing it with a class that is
    named there are no such uses.
    """
    for path, text in project.matching(_CLASS_OF, *_CLASS_WORDS):
        line = _first_class_value(text)
        if line is not None:
            return f"{path}:{line}"
    return None


@lru_cache(maxsize=1024)
def _first_class_value(text: str) -> int | None:
    try:
        outline = Outline("", text)
    except UnparsableModule:
        return next((text.count("\n", 0, one.start()) + 1 for one in _CLASS_OF.finditer(text)), None)
    caught = {one.name for one in outline.find(ast.ExceptHandler)}
    for node in ast.walk(outline.tree):
        asked = _whose_class(node)
        if asked is None or isinstance(asked, ast.Constant):
            continue
        if isinstance(asked, ast.Name) and (asked.id in ("self", "cls") or asked.id in caught):
            continue
        if _is_value(node, outline):
            return int(getattr(node, "lineno", 1))
    return None


def _whose_class(node: ast.AST) -> ast.expr | None:
    """Return ``x`` of ``type(x)`` and ``x.__class__``."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[asked], keywords=[]):
            return asked
        case ast.Attribute(value=asked, attr="__class__"):
            return asked
    return None


def _is_value(node: ast.AST, outline: Outline) -> bool:
    """Return whether the class of an object goes on as a value."""
    parent = outline.parents[node]
    match parent:
        case ast.Attribute() | ast.FormattedValue() | ast.Expr():
            return False
        case ast.Call(func=function) if function is node:
            return False
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _SHOWS:
            return False
        case ast.Call(func=ast.Name(id="issubclass"), args=[first, *_]) if first is node:
            return False
        case ast.Compare(left=left, comparators=others):
            return not all(one is node or _is_named(one) for one in (left, *others))
    return not any(isinstance(around, ast.Raise | ast.Assert) for around in outline.ancestors(node))


def _is_named(node: ast.expr) -> bool:
    """Return whether an expression names classes."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_named, node.elts))
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and node.attr != "__class__")


def place_of_method_made(project: Project) -> str | None:
    """Return where a file may turn a function from other code into a method, as ``path:line``: `partial` makes none."""
    for path, text in project.matching(re.compile(_METHOD_MADE)):
        found = re.search(_METHOD_MADE, text)
        if found is not None:
            return f"{path}:{text.count(chr(10), 0, found.start()) + 1}"
    return None


def place_of_type_look(project: Project, names: Collection[str]) -> str | None:
    """Return where a file checks the class of a function with one of ``names``, as ``path:line``.

    A loop variable over these names counts as well.
    """
    for path, text in project.matching(_CLASS_OF, *_CLASS_WORDS):
        line = _first_type_look(text, frozenset(names))
        if line is not None:
            return f"{path}:{line}"
    return None


@lru_cache(maxsize=1024)
def _first_type_look(text: str, names: frozenset[str]) -> int | None:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return None  # it does not run
    looped = set(_loop_variables(tree, names))
    for node in ast.walk(tree):
        asked = _whose_class(node)
        if asked is not None and _last_name(asked) in names | looped:
            return int(getattr(node, "lineno", 1))
    return None


def _loop_variables(tree: ast.AST, names: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            read = {_last_name(one) for one in ast.walk(node.iter)}
            if not read.isdisjoint(names):
                yield from (one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


#: A called function, and the argument of the call: a position or a keyword.
_Passed = tuple[str, int | str]


def receivers(project: Project, names: frozenset[str]) -> frozenset[str]:
    """Return the parameters of functions and constructors of the project that calls pass one of ``names`` to."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    passed = frozenset(one for _, text in project.matching(pattern, *names) for one in _passed_on(text, names))
    functions = {function for function, _ in passed}
    return frozenset(one for _, text in project.matching(_DEFINED, *functions) for one in _taken_by(text, passed))


@lru_cache(maxsize=1024)
def _passed_on(text: str, names: frozenset[str]) -> frozenset[_Passed]:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return frozenset()
    found: set[_Passed] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (function := _last_name(node.func)):
            found |= {(function, place) for place, given in enumerate(node.args) if _last_name(given) in names}
            found |= {(function, one.arg or "") for one in node.keywords if _last_name(one.value) in names}
    return frozenset(found)


@lru_cache(maxsize=1024)
def _taken_by(text: str, passed: frozenset[_Passed]) -> frozenset[str]:
    """Return the names of parameters of a text's functions and constructors that take a value and pass it on."""
    try:
        outline = Outline("", text)
    except UnparsableModule:
        return frozenset()
    found: set[str] = set()
    for function in outline.functions:
        owner = outline.parents[function]
        called = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        given = function.args
        named = [one.arg for one in (*given.posonlyargs, *given.args)]
        named = named[1:] if named[:1] in (["self"], ["cls"]) else named
        for other, place in passed:
            if other == called and isinstance(place, int):
                found |= {*named[place : place + 1]}
            elif other == called:
                found |= {one for one in (*named, *(one.arg for one in given.kwonlyargs)) if one == place}
    return frozenset(found)


def place_of_function_key(project: Project, names: Collection[str]) -> str | None:
    """Return where a file may use a function with one of ``names`` as the key of a cache, as ``path:line``."""
    known = frozenset(names)
    cached = frozenset(one for word in _CACHES for text in project.texts(word) for one in _cached_functions(text))
    for path, text in project.matching(re.compile(rf"{_WEAK}|\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")):
        line = _first_key(text, known, cached)
        if line is not None:
            return f"{path}:{line}"
    return None


@lru_cache(maxsize=1024)
def _first_key(text: str, names: frozenset[str], cached: frozenset[str]) -> int | None:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return None  # it does not run
    for node in ast.walk(tree):
        keys: list[ast.expr | None] = []
        match node:
            case ast.Subscript(slice=key):
                keys = [key]
            case ast.Dict(keys=given):
                keys = [*given]
            case ast.Set(elts=elements):
                keys = [*elements]
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()]):
                keys = [key]
            case ast.Call(func=ast.Attribute(attr="add" | "get" | "setdefault" | "pop"), args=[key, *_]):
                keys = [key]
            case ast.Call(func=function) if _last_name(function) in cached:
                keys = [*node.args, *(one.value for one in node.keywords)]
            case ast.Name() | ast.Attribute() | ast.alias() if re.search(_WEAK, _last_name(node)):
                return node.lineno
        if any(key is not None and _last_name(key) in names for key in keys):
            return int(getattr(node, "lineno", 1))
    return None


@lru_cache(maxsize=1024)
def _cached_functions(text: str) -> frozenset[str]:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return frozenset()
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for one in node.decorator_list
        if _last_name(one.func if isinstance(one, ast.Call) else one) in _CACHES
    )
