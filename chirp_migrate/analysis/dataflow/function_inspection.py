"""Find code that reads properties of a function, such as its name, which differ if an object replaces the function."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from chirp_migrate.syntax.module import UnparsableModule, syntax_tree, walk_tree
from chirp_migrate.syntax.project import Project

#: Attributes by which code can distinguish one function from another function.
CODE = frozenset(f"__{name}__" for name in ("name", "qualname", "code", "defaults", "closure"))
#: Attributes of a function that the object that replaces the function does not have.
DETAILS = frozenset(f"__{name}__" for name in ("doc", "annotations", "kwdefaults", "globals", "module"))
_TELLING = ("isfunction", "ismethod", "isroutine", "FunctionType", "LambdaType")
#: A check that distinguishes a function from the method that replaces it.
_METHOD_CHECK = r"\bisinstance\([^\n]{0,200}\bMethodType\b"
#: Names that are typical of classes.
_CLASS = re.compile(r"_*[A-Z]+[a-z0-9]\w*|(\w+_)?(cls|class|klass|type|kind)_?")
#: A string with one of the attribute names ``{0}``. A key of a literal dictionary does not match, because a colon
#: follows the key, and the key follows the opening bracket or begins a line.
_STRING = r"""["']({0})["'](?!\s*:)|(?:[^\s{{,]\s*|,[ \t]*)["']({0})["']"""


def find_read_of_function_attribute(project: Project, attributes: frozenset[str]) -> str | None:
    """Return a place (``path:line``) that may read one of ``attributes`` from a function; None without such a place.

    Args:
        project: the project whose files are searched.
        attributes: ``CODE`` or ``DETAILS``. ``CODE`` has attributes that distinguish one function from another, such as
            ``__name__``. ``DETAILS`` has attributes that an object in place of the function would lack, such as
            ``__doc__``. Code that reads these attributes from a class does not count. For ``CODE``, a check such as
            ``inspect.isfunction`` counts, too.
    """
    words = (*sorted(attributes), *((*_TELLING, "MethodType") if attributes == CODE else ()))
    for path, text in project.matching(re.compile("|".join(words)), *words):
        line = _line_of_inspection(text, attributes)
        if line is not None:
            return f"{path}:{line}"
    return None


@lru_cache(maxsize=1024)
def _line_of_inspection(text: str, attributes: frozenset[str]) -> int | None:
    pattern = _STRING.format("|".join(sorted(attributes)))
    if attributes == CODE:
        pattern += rf"|\b(?:{'|'.join(_TELLING)})\b|{_METHOD_CHECK}"
    found = re.search(pattern, text)
    lines = [] if found is None else [text.count("\n", 0, found.start() + 1) + 1]
    try:
        lines += _reads(syntax_tree(text), attributes)
    except UnparsableModule:
        path = rf"(?<!\))(?<!__class__)(?<!\bcls)\.({'|'.join(sorted(attributes))})\b"
        lines += [text.count("\n", 0, one.start()) + 1 for one in re.finditer(path, text)]
    return min(lines, default=None)


def _reads(tree: ast.AST, attributes: Collection[str]) -> Iterator[int]:
    classes = {node.name for node in walk_tree(tree) if isinstance(node, ast.ClassDef)}
    for node in walk_tree(tree):
        if isinstance(node, ast.Attribute) and node.attr in attributes and not _is_class(node.value, classes):
            yield node.lineno


def _is_class(node: ast.expr, classes: Collection[str]) -> bool:
    """Return whether an expression may be a class.

    An expression may be a class if it is any call, such as ``type(…)``, the name of one of ``classes``, or a name that
    is typical of classes, such as ``Birds`` or ``cls``.
    """
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in classes or name == "__class__" or _CLASS.fullmatch(name) is not None
        case ast.Call():
            return True
    return False
