"""Track the values of names in the body of a loop, in the order in which the statements bind the names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import contains_node, find_nodes_in_scope, target_value_pairs

_BINDING = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.AsName, cst.Call)
_Statement = cst.BaseSmallStatement | cst.BaseCompoundStatement

T = TypeVar("T")


def innermost_statement(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    """Return the innermost statement that contains an expression."""
    return next(ancestor for ancestor in module.ancestors(node) if isinstance(ancestor, _Statement))


@dataclass(frozen=True)
class NameBinding(Generic[T]):
    """An assignment to a name by ``statement`` in ``block``.

    After ``offset``, the fact about the value of the name is ``value``.
    """

    offset: int
    value: T
    statement: cst.CSTNode
    block: cst.CSTNode


class LoopNames(ABC, Generic[T]):
    """The names in the body of one loop, and facts about the value of each name.

    The subclass chooses the kind of fact, such as the place of a value in the batch.

    Args:
        module: the module of the loop.
        loop: the loop.
        nothing: the fact that stands for values about which the analysis knows nothing.
    """

    def __init__(self, module: Module, loop: cst.For, nothing: T) -> None:
        self._module, self._loop, self._nothing = module, loop, nothing
        self._bound: dict[str, list[NameBinding[T]]] = {}

    @abstractmethod
    def value(self, node: cst.CSTNode) -> T:
        """Return the fact about an expression in the body, such as its place in the batch."""

    @abstractmethod
    def _fact_of_part(self, value: T, position: str) -> T:
        """Return the fact about one part of a value; the argument ``value`` is the fact about the whole value.

        ``position`` is a key or index, as text; ``*`` stands for any position.
        """

    @abstractmethod
    def _fact_of_item(self, iterable: cst.BaseExpression) -> T:
        """Return the fact about each item of ``iterable``."""

    def _read_body(self) -> None:
        """Record all bindings of names in the body."""
        for node in sorted(find_nodes_in_scope(self._loop.body, *_BINDING), key=lambda one: self._module.span(one)[0]):
            self._read(node)

    def _read(self, node: cst.CSTNode) -> None:
        match node:
            case cst.Assign():
                for target in node.targets:
                    self._assign(target.target, node.value, node)
            case cst.AnnAssign(value=cst.BaseExpression() as value) | cst.NamedExpr(value=value):
                self._assign(node.target, value, node)
            case cst.For():
                self._bind(self._elements(node.target, node.iter), self._module.span(node.body)[0], node)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression, node: cst.CSTNode) -> None:
        for one, given in target_value_pairs(target, value):
            self._record_fact(one, self.value(given), node)

    def _record_fact(self, target: cst.BaseExpression, value: T, node: cst.CSTNode) -> None:
        """Record ``value`` as the fact about ``target`` after the code ``node``."""
        self._bind(self._names(target, value), self._module.span(node)[1], node)

    def _bind(self, names: Iterable[tuple[str, T]], offset: int, node: cst.CSTNode) -> None:
        statement = node if isinstance(node, _Statement) else innermost_statement(self._module, node)
        block: cst.CSTNode = statement
        while not isinstance(block, cst.BaseSuite):
            block = block.body if isinstance(block, cst.For) else self._module.parents[block]
        for name, value in names:
            self._bound.setdefault(name, []).append(NameBinding(offset, value, statement, block))

    def _names(self, target: cst.CSTNode, value: T) -> Iterator[tuple[str, T]]:
        """Yield the names in ``target``, each with a fact; ``value`` is the fact about the assigned value."""
        if isinstance(target, cst.Name):
            yield target.value, value
        elif isinstance(target, cst.Tuple | cst.List):
            starred = False
            for position, element in enumerate(target.elements):
                starred = starred or isinstance(element, cst.StarredElement)
                yield from self._names(element.value, self._fact_of_part(value, "*" if starred else str(position)))

    def _elements(self, target: cst.BaseExpression, iterable: cst.BaseExpression) -> Iterator[tuple[str, T]]:
        """Yield the names that a loop over ``iterable`` binds, each with the fact about its value."""
        parts = [element.value for element in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        called = self._module.qualified_names(iterable.func) if isinstance(iterable, cst.Call) else set()
        match iterable:
            case cst.Call(args=[first, *_]) if called == {"builtins.enumerate"} and len(parts) == 2:
                yield from self._names(parts[0], self._nothing)
                yield from self._elements(parts[1], first.value)
            case cst.Call(args=args) if called == {"builtins.zip"} and len(parts) == len(args):
                for part, one in zip(parts, args, strict=True):
                    yield from self._elements(part, one.value)
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="items"))) if len(parts) == 2:
                yield from self._names(parts[0], self._nothing)
                yield from self._names(parts[1], self._fact_of_item(owner))
            case _:
                yield from self._names(target, self._fact_of_item(iterable))

    def _named(self, name: cst.Name) -> T:
        """Return the fact about the value of a variable at the position in the code at which ``name`` reads it."""
        for ancestor in self._module.ancestors(name):
            if ancestor is self._loop:
                break
            clause = ancestor.for_in if isinstance(ancestor, cst.BaseComp) else None
            while clause is not None and not contains_node(self._module, clause.iter, name):
                for bound, value in self._elements(clause.target, clause.iter):
                    if bound == name.value:
                        return value
                clause = clause.inner_for_in
        place = self._module.span(name)[0]
        before = [one.value for one in self._bound.get(name.value, ()) if one.offset <= place]
        return before[-1] if before else self._nothing
