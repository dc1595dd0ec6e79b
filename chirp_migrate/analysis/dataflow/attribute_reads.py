"""Find code that may read attributes of objects or classes, or list them, in all files of a project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.related_classes import has_bases_or_subclasses
from chirp_migrate.syntax.module import Module, syntax_tree_or_empty, walk_tree
from chirp_migrate.syntax.name_uses import find_aliases
from chirp_migrate.syntax.project import Project


def may_access_attribute_outside_class(project: Project, attribute: str) -> bool:
    """Return whether code may read or set ``attribute`` on any object but ``self``."""
    name = re.escape(attribute)
    return project.search(rf"""\b{name}\b(?<=\.{name})(?<!\bself\.{name})|["']{name}["']""", attribute)


def has_dynamic_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` with ``hasattr`` or ``getattr``."""
    names = "|".join(map(re.escape, attributes))
    asked = r"(?:has|get)attr\b"
    return project.search(rf"""{asked}(?:(?!{asked})[^\r\n])*["'](?:{names})["']""", "hasattr", "getattr")


_HANDLERS = re.compile(r"\bexcept\b")


def has_guarded_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` in a ``try`` statement that handles AttributeError."""
    return any(
        any(isinstance(one, ast.Attribute) and one.attr in attributes for part in node.body for one in walk_tree(part))
        for _, text in project.matching(_HANDLERS, "except")
        for node in _tries_for_missing(text)
    )


@lru_cache(maxsize=256)
def _tries_for_missing(text: str) -> tuple[ast.Try, ...]:
    return tuple(
        node
        for node in walk_tree(syntax_tree_or_empty(text))
        if isinstance(node, ast.Try) and any(_handles_missing(one.type) for one in node.handlers)
    )


def _handles_missing(caught: ast.expr | None) -> bool:
    names = {one.id for one in walk_tree(caught) if isinstance(one, ast.Name)} if caught is not None else {"Exception"}
    return not names.isdisjoint({"AttributeError", "Exception", "BaseException"})


def may_call_method_with_foreign_self(
    module: Module, project: Project, class_definition: cst.ClassDef, method: str
) -> bool:
    """Return whether code may call ``Class.method(x)`` with an object ``x`` of another class.

    A call such as ``Base.method(self)`` in a class that inherits from ``Base`` does not count.
    """
    title = class_definition.name.value
    titles = (
        None
        if has_bases_or_subclasses(module, project, class_definition)
        else {"", title, *find_aliases(project, title)}
    )
    asked = re.compile(rf"""\.\s*{re.escape(method)}\b|["']{re.escape(method)}["']""")
    return any(
        name == method and (titles is None or class_ in titles)
        for _, text in project.matching(asked, method)
        for class_, name in _read_from_classes(text)
    )


@lru_cache(maxsize=1024)
def _read_from_classes(text: str) -> frozenset[tuple[str, str]]:
    """Return pairs (class name, attribute) for the attributes that code may read from classes; "" means any class."""
    return frozenset(_find_reads_from_classes(syntax_tree_or_empty(text), ()))


def _find_reads_from_classes(tree: ast.AST, bases: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the result of :func:`_read_from_classes` for a part of a file.

    ``bases`` contains the bases of the class that contains the part. Calls of methods of these bases do not count.
    """
    for node in ast.iter_child_nodes(tree):
        inner = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else bases
        of_base = _base_methods_called(node, bases)
        match node:
            case (
                ast.Call(func=ast.Name(id="getattr"), args=[asked, ast.Constant(value=str(name)), *_])
                | ast.Attribute(value=asked, attr=name)
            ) if (title := _class_title(asked)) is not None:
                yield title, name
        if of_base is None:
            yield from _find_reads_from_classes(node, inner)
        else:
            others = (part for part in ast.iter_child_nodes(node) if part is not of_base)
            yield from (one for part in others for one in _find_reads_from_classes(part, bases))


def _base_methods_called(node: ast.AST, bases: Sequence[str]) -> ast.expr | None:
    """Return ``Base.method`` if ``node`` is ``Base.method(self, …)`` and ``Base`` is one of ``bases``; else None."""
    match node:
        case ast.Call(func=ast.Attribute(value=asked) as called, args=[ast.Name(), *_]) if ast.unparse(asked) in bases:
            return called
    return None


def _class_title(asked: ast.expr) -> str | None:
    """Return the name of the class that an expression refers to.

    The result is "" if the expression may be any class, as for ``cls``, and ``None`` if the expression is not a class.
    """
    match asked:
        case ast.Name(id="cls") | ast.Attribute(attr="__class__") | ast.Call(func=ast.Name(id="type")):
            return ""
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lstrip("_")[:1].isupper():
            return name
    return None


#: Code that can list the attributes of an object, or the names of a class or module.
_LISTING = re.compile(r"\b(?:vars|dir|globals|getmembers)\s*\(|\b__dict__\b|\b__init_subclass__\b")


def may_list_attributes(module: Module) -> bool:
    """Return whether code of a module may list the attributes of objects, classes or modules, as ``dir(x)`` does."""
    return _LISTING.search(module.text) is not None


#: Code that lists the attributes of an object, except of ``self``, of a class, and of parsed arguments.
_LISTING_OBJECT = (
    r"\b(?:vars|getmembers)\s*\(\s*(?!self\b|cls\b|\w*(?:args|opts?|options)\s*\))\w"
    r"|(?<!\bself)(?<!\bcls)\.\s*__dict__\b"
)


def may_list_attributes_of_any_object(project: Project) -> bool:
    """Return whether code of the project may list the attributes of an object, as ``vars(x)`` does.

    The objects ``self`` and ``cls`` do not count. In calls such as ``vars(args)``, objects with parsed arguments do not
    count either.
    """
    return project.search(_LISTING_OBJECT, "vars", "getmembers", "__dict__")
