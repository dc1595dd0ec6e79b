"""Find code that may assign to attributes of objects, also with computed names, in all files of a project."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.analysis.dataflow.related_classes import has_bases_or_subclasses
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree, syntax_tree_or_empty, walk_tree
from chirp_migrate.syntax.patched_names import modules_with_assignment
from chirp_migrate.syntax.project import Project, cached_until_text_changes

#: Words in code that can assign an attribute whose name is a string.
_BY_NAME = ("setattr", "__setattr__", "vars", "__dict__")


def is_assigned_later(project: Project, attribute: str) -> bool:
    """Return whether code assigns to ``attribute`` of any object, except by ``self.attribute = …`` in ``__init__``.

    Code that sets attributes with computed names counts, too.
    """
    name = re.escape(attribute)
    by_name = (
        rf"""(?:\bsetattr|__setattr__)\s*\((?:(?!setattr)[^,])*,(?!\s*["'](?!{name}["'])\w+["']\s*,)"""
        r"|(?:\bvars\s*\([^()]*\)|__dict__)\s*(?:\[|=(?!=)|\|=|\.\s*(?:update|setdefault|pop|clear)\b)"
    )
    return project.search(by_name, *_BY_NAME) or any(
        _assigns_later(syntax_tree_or_empty(text), attribute)
        for _, text in project.matching(re.compile(rf"\.\s*{name}\b"), attribute)
    )


def _assigns_later(tree: ast.AST, attribute: str, own: str = "") -> bool:
    """Return whether code assigns to ``attribute`` of any object but ``own``, the first parameter of ``__init__``."""
    for node in ast.iter_child_nodes(tree):
        inner = own
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            is_init = isinstance(node, ast.FunctionDef) and node.name == "__init__" and isinstance(tree, ast.ClassDef)
            parameters = [*node.args.posonlyargs, *node.args.args] if isinstance(node, ast.FunctionDef) else []
            inner = parameters[0].arg if is_init and parameters else ""
        if _assigns(node, attribute, own) or _assigns_later(node, attribute, inner):
            return True
    return False


def _assigns(node: ast.AST, attribute: str, own: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != attribute or isinstance(node.ctx, ast.Load):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == own)


#: Names that are typical of parsed arguments, settings and models, but not of datasets.
_SETTINGS = re.compile(r"(.*\.)?(args|opts?|options|namespace|\w*(config|cfg|params?|settings|model|module|net))")


def may_set_computed_attributes(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether any file of the project may set attributes with computed names on objects of a class.

    An example is ``setattr(self, name, value)``. Code in the class that sets such attributes on ``self`` counts. If the
    class has bases or subclasses in the project, such code in every class counts. Code that sets such attributes on any
    other object counts, too, unless the name of the object is typical of arguments, settings or models, such as
    ``args`` or ``config``.
    """
    title = None if has_bases_or_subclasses(module, project, class_definition) else class_definition.name.value
    return any(
        _SETTINGS.fullmatch(changed) is None if changed != "self" else around in (title or around, None)
        for changed, around in objects_with_computed_attributes(project)
    )


@cached_until_text_changes
def objects_with_computed_attributes(project: Project) -> list[tuple[str, str | None]]:
    """Return pairs (object, class) for code that sets attributes with computed names.

    The first item is the source code of the object, such as ``self``. The second item is the name of the class that
    contains the code, or None.
    """
    return [
        (ast.unparse(changed), around)
        for path in project.paths_containing(*_BY_NAME)
        for changed, around in _find_set_by_computed_names(syntax_tree_or_empty(project.text(path)), None)
    ]


def _find_set_by_computed_names(tree: ast.AST, around: str | None) -> Iterator[tuple[ast.expr, str | None]]:
    """Yield each object on which code sets attributes with computed names, and the class that contains the code.

    Code in ``__setstate__`` does not count, because it restores attributes that existed before.
    """
    for node in ast.iter_child_nodes(tree):
        if (changed := _object_with_computed_names(node)) is not None:
            yield changed, around
        if not isinstance(node, ast.FunctionDef) or node.name != "__setstate__":
            yield from _find_set_by_computed_names(node, node.name if isinstance(node, ast.ClassDef) else around)


def _object_with_computed_names(node: ast.AST) -> ast.expr | None:
    """Return the object on which ``node`` sets attributes with computed names; None for any other node."""
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[changed, name, _]):
            return None if isinstance(name, ast.Constant) else changed
        case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[*changes, name, _]):
            own = changes[0] if changes else ast.Name("self")
            return None if isinstance(name, ast.Constant) else own
        case ast.Call(func=ast.Attribute(value=held, attr="update" | "setdefault" | "__setitem__")):
            return _owner_of_attributes(held)
        case ast.Subscript(value=held, slice=name, ctx=ast.Store()):
            return None if isinstance(name, ast.Constant) else _owner_of_attributes(held)
        case ast.Attribute(value=changed, attr="__dict__", ctx=ast.Store()):
            return changed
    return None


def _owner_of_attributes(held: ast.expr) -> ast.expr | None:
    """Return ``x`` for ``x.__dict__`` and ``vars(x)``; None for other expressions."""
    match held:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
    return None


def _outside_assignments(attribute: str) -> re.Pattern[str]:
    """Return a regular expression for assignments, also by ``setattr``, to ``attribute`` of any object but ``self``."""
    name = re.escape(attribute)
    not_own = rf"(?<!\bself\.{name})"
    item = rf"""\s*\[\s*["']{name}["']\s*\]\s*=(?!=)"""
    updated = rf"\s*\.\s*update\s*\((?:(?!\bupdate\b)[^)])*\b{name}\b"
    # Each pattern begins with a fixed character, so that `re` skips most of a text quickly.
    return re.compile(
        "|".join(
            (
                rf"\.{name}{not_own}\s*(?:[-+*/@%&|^]|//|\*\*)?=(?!=)",
                rf"\n(?=[\w., \t]*=(?!=))[\w., \t]*\.{name}{not_own}[ \t]*,",
                *(rf"{word}(?<!\w{word})\s+[\w.]*\.{name}{not_own}\b" for word in ("for", "as", "del")),
                rf"""setattr(?<![\w.]setattr)\s*\((?!self\b)(?:(?!setattr)[^,])*,\s*["']{name}["']""",
                *(rf"{end}{way}" for end in (r"\)", "_") for way in (item, updated)),
            )
        )
    )


@cached_until_text_changes
def may_be_assigned_outside_class(project: Project, attribute: str) -> bool:
    """Return whether any code may assign to ``attribute`` of any object but ``self``.

    An annotation does not count as an assignment. For example, ``loader: torch.utils.data.DataLoader = None`` does not
    assign to ``DataLoader``.
    """
    assigned = _outside_assignments(attribute)
    return any(assigned.search(_without_annotations(text)) for _, text in project.matching(assigned, attribute))


def _without_annotations(text: str) -> str:
    """Return code with ``_`` in place of each annotation of a parameter or variable.

    A text that is not Python is returned unchanged.
    """
    try:
        nodes = list(walk_tree(syntax_tree(text)))
    except UnparsableModule:
        return text
    code = text.encode()
    starts = [0, *itertools.accumulate(map(len, code.splitlines(keepends=True)))]
    given = [one.annotation for one in nodes if isinstance(one, ast.arg | ast.AnnAssign) and one.annotation is not None]
    for node in sorted(given, key=lambda one: (one.lineno, one.col_offset), reverse=True):
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        code = code[: starts[node.lineno - 1] + node.col_offset] + b"_" + code[last:]
    return code.decode()


def is_assigned_in_module(project: Project, module: str, name: str) -> bool:
    """Return whether a file assigns to ``name`` in a module called ``module``, as in ``train.data = …``."""
    return any(
        not {module, ""}.isdisjoint(modules_with_assignment(text, name))
        for _, text in project.matching(_outside_assignments(name), name)
    )
