"""Read the statements of classes that augment samples. The module ``augmenter_meaning`` checks these statements."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

_EARLY = ("random.random() > self.p", "random.random() >= self.p")
_ENCLOSING = ("random.random() < self.p", "random.random() <= self.p")


class UnknownAugmentation(Exception):
    """Raised for a class with code that the rule for augmentations does not recognise. The message names the code."""


def methods_of(class_source: str) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class by name.

    Raises:
        UnknownAugmentation: the class contains a statement that is neither a method nor a docstring, or two methods
            with the same name.
    """
    tree = ast.parse(class_source).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in found:
            found[node.name] = node
        elif not _is_text(node):
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(node)}`")
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def first_source_line(node: ast.AST) -> str:
    """Return the first line of a statement, for messages."""
    return ast.unparse(node).splitlines()[0]


def sample_parameter_and_body(function: ast.FunctionDef) -> tuple[str, list[ast.stmt]]:
    """Return the name of a method's only parameter besides ``self``, and the method's statements without docstring."""
    given = function.args
    names = [argument.arg for argument in given.args]
    others = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if len(names) != 2 or names[0] != "self" or others or function.decorator_list:
        raise UnknownAugmentation(
            f"`{function.name}` has a decorator or a default, or other parameters than `self` and a sample"
        )
    body = function.body[1:] if _is_text(function.body[0]) else function.body
    return names[1], list(body)


def split_at_random_condition(body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.stmt]]:
    """Split the statements of a method at the gate, the ``if`` that decides at random whether to augment the sample.

    Returns:
        Three lists: the statements before the gate, the statements that augment, and the statements that run if the
        gate skips the augmentation.
    """
    for place, gate in enumerate(body):
        if isinstance(gate, ast.If) and ast.unparse(gate.test) in (*_EARLY, *_ENCLOSING):
            rest = [*gate.orelse, *body[place + 1 :]]
            early = ast.unparse(gate.test) in _EARLY
            after = list(body[place + 1 :])
            work, left = (rest, list(gate.body)) if early else ([*gate.body, *after], rest)
            return list(body[:place]), work, left
    raise UnknownAugmentation(
        "the method does not decide with exactly one `random.random() > self.p` whether to augment a sample"
    )


def target_value_pairs(node: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Return the pairs (target, value) of an assignment. For ``a, b = x, y``, the result has two pairs."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(node)}`")
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


class ExpressionNormalizer(ast.NodeTransformer):
    """Normalise expressions, so that equivalent expressions have the same text.

    The operands of a sum or product, and the two arguments of ``min`` and ``max``, are sorted. ``a < b`` becomes ``b >
    a``. True or False replaces a condition with a known result, such as ``3 == 2``.

    Args:
        names: maps names to the expressions that replace these names.
        same: maps the normalised text of an expression to the expression that replaces it.
    """

    def __init__(self, names: Mapping[str, ast.expr], same: Mapping[str, ast.expr] | None = None) -> None:
        self._names = names
        self._same = same or {}

    def normalized(self, node: ast.AST) -> Any:
        """Return the normalised copy of a node."""
        return self.visit(deepcopy(node))

    def text(self, node: ast.AST | str) -> str:
        """Return the normalised source of a node, or of a text with one statement."""
        return ast.unparse(self.normalized(ast.parse(node).body[0] if isinstance(node, str) else node))

    def visit(self, node: ast.AST) -> ast.AST:
        """Normalise a node in place, and return the node that replaces it."""
        self.generic_visit(node)
        match node:
            case ast.Name(id=name):
                return self._names.get(name, node)
            case ast.BinOp(op=ast.Add() | ast.Mult()):
                node.left, node.right = sorted((node.left, node.right), key=ast.unparse)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _]):
                node.args.sort(key=ast.unparse)
            case ast.Compare(left, [ast.Lt()], [right]):
                return ast.Compare(right, [ast.Gt()], [left])
            case ast.Compare(
                left=ast.Constant(value=int() as count), ops=[ast.Eq()], comparators=[ast.Constant(value=2)]
            ):
                return ast.Constant(count == 2)
            case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=bool() as holds)):
                return ast.Constant(not holds)
            case ast.IfExp(test=ast.Constant(value=bool() as holds)):
                return node.body if holds else node.orelse
        return self._same.get(ast.unparse(node), node) if isinstance(node, ast.expr) else node
