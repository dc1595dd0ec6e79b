"""Find the nodes of a source text in the rewritten text."""

from __future__ import annotations

import ast
from functools import lru_cache

from chirp_migrate.syntax.module import syntax_tree

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Nodes with equal numbers have the same structure.
_Numbers = dict[ast.AST, int]


def line_and_column(node: ast.AST) -> tuple[int, int]:
    """Return line and column of a node, as ``ast`` counts them."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


class NodesAfterRewrite:
    """Find nodes of an original text in the rewritten text.

    A definition in one text corresponds to a definition with the same name in the other text. Loops correspond if they
    have the same header, and other nodes if they have the same structure. If several nodes have the same structure, the
    first of these nodes in the original text corresponds to the first of these nodes in the rewritten text, and so on.
    If the rewritten text has fewer of these nodes, its last node also corresponds to all remaining nodes of the
    original text. The search takes time that is linear in the size of the text.

    Args:
        before: the text that contains the nodes.
    """

    def __init__(self, before: str) -> None:
        self._known: dict[tuple[object, ...], int] = {}
        self._numbers = self._number_nodes(syntax_tree(before))
        self._before = self._by_number(syntax_tree(before), self._numbers)
        self._rank = {
            (number, line_and_column(node)): rank
            for number, nodes in self._before.items()
            for rank, node in reversed([*enumerate(nodes)])
        }
        self._after = lru_cache(maxsize=1)(self._read)

    def find(self, node: ast.AST, now: str) -> ast.AST | None:
        """Return the node in the text ``now`` that corresponds to ``node``; None if the rewrite removed the node."""
        numbers = self._numbers if node in self._numbers else self._number_nodes(node)
        number = self._identity(node, numbers)
        left = self._after(now).get(number)
        return left[min(self._rank.get((number, line_and_column(node)), 0), len(left) - 1)] if left else None

    def _read(self, text: str) -> dict[int, list[ast.AST]]:
        tree = syntax_tree(text)
        return self._by_number(tree, self._number_nodes(tree))

    def _number_nodes(self, tree: ast.AST) -> _Numbers:
        """Return a number for each node at or below ``tree``. Nodes of equal structure have equal numbers."""
        numbers: _Numbers = {}

        def part(value: object) -> object:
            if isinstance(value, ast.AST):
                return numbers[value]
            return tuple(map(part, value)) if isinstance(value, list) else repr(value)

        for node in reversed([*ast.walk(tree)]):
            numbers[node] = self._number(type(node), *((name, part(value)) for name, value in ast.iter_fields(node)))
        return numbers

    def _number(self, *structure: object) -> int:
        return self._known.setdefault(structure, len(self._known))

    def _identity(self, node: ast.AST, numbers: _Numbers) -> int:
        """Return a number that identifies a node, and that stays the same when a rewrite changes the text around it."""
        if isinstance(node, _DEFINITIONS):
            return self._number(type(node), node.name)
        if isinstance(node, ast.For | ast.AsyncFor):
            return self._number(type(node), numbers[node.target], numbers[node.iter])
        return numbers[node]

    def _by_number(self, tree: ast.Module, numbers: _Numbers) -> dict[int, list[ast.AST]]:
        """Return the statements and expressions of a tree by the number from :meth:`_identity`, in order of the text.

        The result omits functions and classes that are not inside a function. So a local function never corresponds to
        a module-level function of the same name.
        """
        found: dict[int, list[ast.AST]] = {}
        pending: list[tuple[ast.AST, bool]] = [(tree, False)]
        for node, is_local in pending:
            if isinstance(node, ast.stmt | ast.expr) and (is_local or not isinstance(node, _DEFINITIONS)):
                found.setdefault(self._identity(node, numbers), []).append(node)
            inside = is_local or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            pending += [(child, inside) for child in ast.iter_child_nodes(node)]
        for same in found.values():
            same.sort(key=line_and_column)
        return found
