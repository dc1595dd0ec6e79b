"""Find out whether code or a configuration file may refer to a top-level name by a string."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from chirp_migrate.syntax.module import Module, syntax_tree_or_empty, walk_tree
from chirp_migrate.syntax.project import Project, cached_until_text_changes

#: Generic types whose parameters are types. (Those of ``Literal`` are values.)
_GENERICS = frozenset(
    {
        "AsyncIterator", "Callable", "ClassVar", "Collection", "Dict", "Final", "Generator", "Iterable", "Iterator",
        "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union", "dict", "list", "set", "tuple",
        "type",
    }
)  # fmt: skip
#: Words of code that may look up quoted types in the names of another module.
_TYPE_LOOKUPS = ("get_type_hints", "globalns", "update_forward_refs", "model_rebuild", "_types_namespace")
#: The ends of lines in Python source.
_NEWLINE = re.compile(r"\r\n?|\n")
_WORD = re.compile(r"\w+")
#: The end of a dotted path at the end of a string. `re` is faster for patterns that begin with plain characters.
_LAST_NAME = re.compile(r"""\.(\w+)\\?["']""")
_GETATTR = re.compile(r"""getattr\s*\([^,()]*,\s*["'](\w+)["']""")


def is_named_in_strings(module: Module, project: Project, name: str) -> bool:
    """Return whether other code may read a top-level name of ``module`` by a string.

    The result is True if a string or a configuration file contains ``module.name``, or if ``getattr`` is called with
    the name. For the name of a class, the result is also True if a string or a value in a configuration file ends with
    the name. An annotation in quotes, such as ``"Net"``, does not count if the annotation is in another file, and this
    file imports or defines the name. This exception does not apply if code of the project may evaluate annotations.
    """
    file_name = module.name.rpartition(".")[2]
    owner = _WORD.findall(file_name)[-1:]  # a file name such as `my-script` contains several words
    dotted, read_by_getattr = _names_in_strings(project)
    if name in read_by_getattr or any(owners.issuperset(owner) for owners in dotted.get(name, ())):
        return True
    last, other = re.escape(name), ""
    if name[:1].isupper():
        ends = re.compile(rf"""{last}(?<=["'.]{last})["']""")
        may_look_up_types = any(True for _ in project.paths_containing(*_TYPE_LOOKUPS))
        if any(
            path == module.path or may_look_up_types or _has_match_outside_types(text, name, ends)
            for path, text in project.matching(ends, name)
        ):
            return True
        other = rf"""|[:=,\[-][ \t]*["']?{last}["']?[ \t]*(?:[,\]}}#\r\n]|\Z)"""
    pattern = rf"\b{re.escape(file_name)}\.{last}\b{other}"
    return name in project.words_of_settings and project.settings_match(re.compile(pattern))


@cached_until_text_changes
def _names_in_strings(project: Project) -> tuple[dict[str, list[set[str]]], set[str]]:
    """Return the names at the end of dotted paths in strings, and the names that code passes to ``getattr``.

    The dictionary has, for each name at the end of a path and for each file, the names before it.
    """
    dotted: dict[str, list[set[str]]] = defaultdict(list)
    for path in project.texts:
        for name, owners in project.fact(path, _dotted_names_in_strings).items():
            dotted[name].append(owners)
    return dict(dotted), set().union(*(project.fact(path, _names_read_by_getattr) for path in project.texts))


def _dotted_names_in_strings(text: str) -> dict[str, set[str]]:
    """Return the last name of each dotted path at the end of a string, with the names before it.

    In ``"train.data.Net"``, ``data`` is before ``Net``. In ``".Net"``, the empty name is before ``Net``.
    """
    found: dict[str, set[str]] = {}
    for match in _LAST_NAME.finditer(text):
        first = end = match.start()
        while first and (text[first - 1].isalnum() or text[first - 1] == "_"):
            first -= 1
        found.setdefault(match[1], set()).add(text[first:end])
    return found


def _names_read_by_getattr(text: str) -> frozenset[str]:
    return frozenset(_GETATTR.findall(text))


def _has_match_outside_types(text: str, name: str, pattern: re.Pattern[str]) -> bool:
    """Return whether ``pattern`` matches in a text, except in the quoted type ``"name"`` of an annotation."""
    types = [source for quoted, source in _quoted_types(text) if quoted == name and _binds(text, name)]
    return len(pattern.findall(text)) > sum(len(pattern.findall(one)) for one in types)


def _binds(text: str, name: str) -> bool:
    """Return whether a file imports ``name``, or defines a class with this name."""
    return any(
        (isinstance(node, ast.alias) and name == (node.asname or node.name))
        or (isinstance(node, ast.ClassDef) and node.name == name)
        for node in walk_tree(syntax_tree_or_empty(text))
    )


@lru_cache(maxsize=1024)
def _quoted_types(text: str) -> tuple[tuple[str, str], ...]:
    """Return each string that is a type in an annotation, such as ``"Net"`` in ``list["Net"]``, with its source."""
    annotations: list[ast.expr | None] = []
    for node in walk_tree(syntax_tree_or_empty(text)):
        match node:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                annotations.append(annotation)
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
                annotations.append(returns)
    quoted = [one for annotation in annotations if annotation is not None for one in _strings_as_types(annotation)]
    lines = [line.encode() for line in _NEWLINE.split(text)] if quoted else []
    return tuple(
        (str(one.value), lines[one.lineno - 1][one.col_offset : one.end_col_offset].decode(errors="replace"))
        for one in quoted
        if one.lineno == one.end_lineno
    )


def _strings_as_types(annotation: ast.expr) -> Iterator[ast.Constant]:
    match annotation:
        case ast.Constant(value=str()):
            yield annotation
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from (*_strings_as_types(left), *_strings_as_types(right))
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            yield from (one for element in elements for one in _strings_as_types(element))
        case ast.Subscript(value=ast.Name(id=generic) | ast.Attribute(attr=generic), slice=inner):
            if generic in _GENERICS:
                yield from _strings_as_types(inner)
