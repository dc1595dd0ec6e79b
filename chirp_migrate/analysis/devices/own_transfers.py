"""Find reasons against non-blocking copies in a project: classes that define ``to``, and Apple's device ``mps``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from chirp_migrate.analysis.known_names import NN_MODULE, inherits_from
from chirp_migrate.syntax.module import UnparsableModule, syntax_tree, walk_tree
from chirp_migrate.syntax.name_resolution import resolve_ast_node
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project, cached_until_text_changes

_MOVES = ("to", "cuda")
_GETTERS = ("__getattr__", "__getattribute__")
_GIVEN = "the project replaces the method `{}` of an object, and the replacement may lack the parameter `non_blocking`"
#: Code, mostly in tests, that inspects the arguments of calls of ``to``, or replaces this method of tensors.
_OBSERVED = re.compile(
    r"""\.(?:to|cuda)\.(?:assert_\w+|call_args\w*|mock_calls)|\bTensor(?:\s*,\s*["']|\.)(?:to|cuda)(?:["']|\s*=(?!=))"""
)
#: Calls that print or store their keyword arguments.
_SHOWS = re.compile(r"print|\w*log\w*|info|debug|warning|add_scalars?|set_postfix|update|append|format|write|get|pop")


def why_method_to_may_lack_non_blocking(project: Project) -> str | None:
    """Return why the project may have a method ``to`` or ``cuda`` that takes no ``non_blocking``; else ``None``."""
    wanted = re.compile(rf"\b(?:{'|'.join((*_MOVES, *_GETTERS))})\b")
    for path, text in project.matching(wanted, *_MOVES, *_GETTERS):
        for line, reason, owner in _unsafe_transfers(text):
            if owner is None or not _is_model(project, path, text, owner):
                return f"{reason} ({path}:{line})"
    return None


def find_mps_device(project: Project) -> str | None:
    """Return a place (``path:line``) that names Apple's device ``mps``; None without such a place.

    A metric called "mps" does not count.
    """
    for path, text in project.matching(re.compile(r"\bmps\b"), "mps"):
        line = _line_of_mps(text)
        if line is not None:
            return f"{path}:{line}"
    return None


@cached_until_text_changes
def find_transfer_argument_inspection(project: Project) -> str | None:
    """Return a place (``path:line``) that inspects the arguments of calls of ``to`` or ``cuda``, as mocks in tests do.

    The result is None without such code.
    """
    for path, text in project.matching(_OBSERVED, *_MOVES):
        found = _OBSERVED.search(text)
        assert found is not None
        return f"{path}:{text.count(chr(10), 0, found.start()) + 1}"
    return None


def _is_model(project: Project, path: str, text: str, owner: str) -> bool:
    """Return whether the class ``owner`` of a file inherits from ``torch.nn.Module``.

    The ``to`` of such a class is no reason against non-blocking copies of batches, because no batch is a model.
    """
    outline = Outline(path, text)
    classes = (node for node in outline.find(ast.ClassDef) if node.name == owner)
    bases = (name for node in classes for base in node.bases for name in resolve_ast_node(project, outline, base))
    return any(inherits_from(project, name, NN_MODULE) for name in bases)


@lru_cache(maxsize=256)
def _unsafe_transfers(text: str) -> tuple[tuple[int, str, str | None], ...]:
    """Return line, reason and class of each place where a text may define a ``to`` without ``non_blocking``."""
    try:
        return tuple(_transfers_in(syntax_tree(text)))
    except UnparsableModule:
        return (
            (1, "a file that is not valid Python may define a method `to` without the parameter `non_blocking`", None),
        )


def _transfers_in(tree: ast.AST) -> Iterator[tuple[int, str, str | None]]:
    methods = {one for node in walk_tree(tree) if isinstance(node, ast.ClassDef) for one in node.body}
    for node in walk_tree(tree):
        match node:
            case ast.ClassDef(name=owner, body=body):
                yield from ((line, reason, owner) for line, reason in _transfers_of_class(owner, body))
            case ast.Attribute(attr=name, ctx=ast.Store()) if name in _MOVES + _GETTERS:
                yield node.lineno, _GIVEN.format(name), None
            case ast.Call(
                func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=name), _]
            ) if name in _MOVES + _GETTERS:
                yield node.lineno, _GIVEN.format(name), None
            case ast.FunctionDef(name=name, args=arguments) if name in _GETTERS and len(arguments.args) > 1:
                # Methods are checked together with their class. This branch checks plain functions, which other code
                # may assign to a class.
                if node not in methods:
                    yield (
                        node.lineno,
                        f"the function `{name}` may return a method `to` without the parameter `non_blocking`",
                        None,
                    )
            case ast.Call(func=ast.Name(id="type"), args=[_, _, ast.Dict(keys=keys)]):
                if any(isinstance(key, ast.Constant) and key.value in (*_MOVES, *_GETTERS) for key in keys):
                    yield (
                        node.lineno,
                        "a class made with `type()` may have a method `to` without the parameter `non_blocking`",
                        None,
                    )


def _transfers_of_class(owner: str, body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in (part for statement in body for part in (statement, *_under_conditions(statement))):
        match node:
            case ast.FunctionDef(name=name, args=arguments) if name in _MOVES:
                names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
                if "non_blocking" not in names and arguments.kwarg is None and arguments.vararg is None:
                    yield node.lineno, f"the batch may be a `{owner}`, whose `{name}` takes no `non_blocking`"
            case ast.Assign(targets=targets):
                given = {target.id for target in targets if isinstance(target, ast.Name)}
                for name in (one for one in (*_MOVES, *_GETTERS) if one in given):
                    yield node.lineno, f"the batch may be a `{owner}`, whose `{name}` may take no `non_blocking`"
            case ast.FunctionDef(name=name) if name in _GETTERS:
                yield (
                    node.lineno,
                    f"the batch may be a `{owner}`, whose `{name}` may return a method `to` without the parameter "
                    "`non_blocking`",
                )


def _under_conditions(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements inside an ``if``, ``try`` or ``with`` statement."""
    if isinstance(statement, ast.If | ast.Try | ast.With):
        for node in walk_tree(statement):
            if isinstance(node, ast.stmt) and node is not statement:
                yield node


@lru_cache(maxsize=256)
def _line_of_mps(text: str) -> int | None:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return 1 if re.search(r"""["']mps\b|\bbackends\s*\.\s*mps\b""", text) else None
    shown = {part for node in walk_tree(tree) for part in _possible_metric_names(node)}
    for node in walk_tree(tree):
        match node:
            case ast.Constant(value=str() as value) if node not in shown and re.fullmatch(r"mps(:\d+)?", value):
                return node.lineno
            case ast.Attribute(attr="mps", value=ast.Attribute(attr="backends") | ast.Name(id="torch" | "backends")):
                return node.lineno
    return None


def _possible_metric_names(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the strings that may name a metric: keys, and the first arguments of calls that print or store values."""
    match node:
        case ast.Dict(keys=keys):
            yield from (key for key in keys if key is not None)
        case ast.Subscript(slice=key):
            yield key
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if _SHOWS.fullmatch(name):
            yield first
