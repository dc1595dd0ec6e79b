"""Which expressions in the body of a loop are the batch that the loop was given, or a part of it as it came."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.catalogue import is_call_of
from chirp_migrate.analysis.datasets.collecting import is_read_outside
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.queries import Mention, assigned_pairs, holds, mention, own_nodes

#: What reads a tensor or its container and keeps no view of it.
_READS = re.compile(
    r"to|cuda|size|shape|dim|ndim|numel|nelement|device|dtype|items|keys|values|item|tolist|sum|mean|max|min|any|all"
    r"|argmax|type|clone|is_cuda|is_pinned|eq|ne"
)
_READING = re.compile(r"builtins\.(len|isinstance|print|str|int|float|bool|type|id|range)|torch\.is_tensor")

_USED = (Mention.READ, Mention.CHANGED, Mention.DELETED)

#: Where in a batch a value lies: keys and positions as they are written, ``*`` for "some".
Path = tuple[str, ...]


def statement_of(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    """The statement that holds an expression."""
    kinds = cst.BaseSmallStatement | cst.BaseCompoundStatement
    return next(ancestor for ancestor in module.ancestors(node) if isinstance(ancestor, kinds))


@dataclass(frozen=True)
class _Bound:
    """A name is bound to a place in the batch, or to something else, from ``offset`` on, by a statement of a block."""

    offset: int
    path: Path | None
    statement: cst.CSTNode
    block: cst.CSTNode


class Batch:
    """The batch in the body of one loop.

    Args:
        module: the module that holds the loop.
        loop: the loop.
        targets: the parts of its target that batches are bound to, one for each loader it goes through.
    """

    def __init__(self, module: Module, loop: cst.For, targets: list[cst.BaseExpression]) -> None:
        self._module = module
        self._loop = loop
        self._bound: dict[str, list[_Bound]] = {}
        for position, target in enumerate(targets):
            path = (f"#{position}",) if len(targets) > 1 else ()
            self._bind(_names(target, path), module.span(loop.target)[0], loop)
        kinds = cst.Assign | cst.AugAssign | cst.AnnAssign | cst.For | cst.NamedExpr | cst.AsName
        nodes = [node for node in own_nodes(loop.body) if isinstance(node, kinds)]
        for node in sorted(nodes, key=lambda one: module.span(one)[0]):
            self._read(node)

    def path(self, node: cst.CSTNode) -> Path | None:
        """Where in the batch the value of an expression lies; ``None`` when it does not lie there as it came."""
        if isinstance(node, cst.Name):
            return self._path_of_name(node)
        if isinstance(node, cst.Subscript):
            owner = self.path(node.value)
            return None if owner is None else (*owner, _key(node))
        if isinstance(node, cst.Attribute) and not _READS.fullmatch(node.attr.value):
            owner = self.path(node.value)
            return None if owner is None else (*owner, f".{node.attr.value}")
        return None

    def used_after(self, call: cst.Call, path: Path) -> str | None:
        """Why the memory that is copied might be written before the copy is done, in words."""
        start, end = self._module.span(call)
        inner = [a for a in self._module.ancestors(call) if isinstance(a, cst.For | cst.While)]
        inner = inner[: inner.index(self._loop)]
        statement = statement_of(self._module, call)
        begin = self._module.span(inner[-1] if inner else statement)[0]
        stored = self._stored(call, path)
        for name in walk(self._loop.body):
            if not isinstance(name, cst.Name) or name.value in stored or mention(self._module, name) not in _USED:
                continue
            place = self._module.span(name)[0]
            if start <= place < end:
                continue
            outer: cst.CSTNode = name
            while isinstance(parent := self._module.parents[outer], cst.Subscript) and parent.value is outer:
                outer = parent
            if self._only_read(outer):
                continue
            paths = self._paths(outer, statement) if place >= begin else self._earlier_paths(outer)
            if any(_overlap(one, path) for one in paths):
                return f"`{self._module.source(outer).strip()}` is used again, and might be changed before it is copied"
        for bound in sorted(self._bound.keys() - stored):
            kept = any(_overlap(one, path) for one in self._given(bound, {self._loop.body}, statement))
            if kept and is_read_outside(self._module, self._loop, bound):
                return f"`{bound}` may be used again behind the loop, and changed before it is copied"
        return None

    def _paths(self, node: cst.CSTNode, moving: cst.CSTNode) -> Iterator[Path]:
        """Where in the batch a value may lie when the statement ``moving`` has run."""
        if isinstance(node, cst.Subscript):
            yield from ((*one, _key(node)) for one in self._paths(node.value, moving))
            return
        path = self.path(node)
        if path is not None:
            yield path
        elif isinstance(node, cst.Name):
            yield from self._given(node.value, {*self._module.ancestors(node)}, moving, self._module.span(node)[0])

    def _given(
        self, name: str, around: set[cst.CSTNode], moving: cst.CSTNode, place: int = sys.maxsize
    ) -> Iterator[Path]:
        """What ``name`` may be bound to at ``place``, in the blocks ``around`` it."""
        for bound in reversed(self._bound.get(name, ())):
            if bound.offset <= place:
                if bound.path is not None:
                    yield bound.path
                if bound.block in around or bound.statement is moving:
                    return

    def _earlier_paths(self, node: cst.CSTNode) -> Iterator[Path]:
        """Where in the batch of an earlier turn a value may lie: it has none in this turn, or runs later."""
        while isinstance(node, cst.Subscript):
            node = node.value
        functions = (cst.FunctionDef, cst.Lambda)
        name = node.value if isinstance(node, cst.Name) else ""
        around = [a for a in self._module.ancestors(node) if isinstance(a, (cst.For, *functions))]
        later = any(isinstance(one, functions) for one in around[: around.index(self._loop)])
        bound = self._bound.get(name, [])
        if later or not any(one.offset <= self._module.span(node)[0] for one in bound):
            yield from (one.path for one in bound if one.path is not None)

    def _path_of_name(self, name: cst.Name) -> Path | None:
        place = self._module.span(name)[0]
        for ancestor in self._module.ancestors(name):
            if ancestor is self._loop:
                break
            if isinstance(ancestor, cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp):
                clause: cst.CompFor | None = ancestor.for_in
                while clause is not None and not holds(self._module, clause.iter, name):
                    for bound, path in self._elements(clause.target, clause.iter):
                        if bound == name.value:
                            return path
                    clause = clause.inner_for_in
        before = [one.path for one in self._bound.get(name.value, ()) if one.offset <= place]
        return before[-1] if before else None

    def _bind(self, names: Iterable[tuple[str, Path | None]], offset: int, node: cst.CSTNode) -> None:
        kinds = cst.BaseSmallStatement | cst.BaseCompoundStatement
        statement = node if isinstance(node, kinds) else statement_of(self._module, node)
        block: cst.CSTNode = statement
        while not isinstance(block, cst.BaseSuite):
            block = block.body if isinstance(block, cst.For) else self._module.parents[block]
        for name, path in names:
            self._bound.setdefault(name, []).append(_Bound(offset, path, statement, block))

    def _read(self, node: cst.CSTNode) -> None:
        start, end = self._module.span(node)
        if isinstance(node, cst.Assign):
            for target in node.targets:
                self._assign(target.target, node.value, end, node)
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr):
            if node.value is not None:
                self._assign(node.target, node.value, end, node)
        elif isinstance(node, cst.AugAssign):
            self._bind(_names(node.target, None), end, node)
        elif isinstance(node, cst.For):
            self._bind(self._elements(node.target, node.iter), self._module.span(node.body)[0], node)
        elif isinstance(node, cst.AsName):
            self._bind(_names(node.name, None), start, node)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression, offset: int, node: cst.CSTNode) -> None:
        for one, given in assigned_pairs(target, value):
            self._bind(_names(one, self.path(given)), offset, node)

    def _elements(self, target: cst.BaseExpression, iterable: cst.BaseExpression) -> Iterator[tuple[str, Path | None]]:
        """Names that a loop through ``iterable`` binds, with what they are bound to."""
        parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        if not isinstance(iterable, cst.Call):
            owner = self.path(iterable)
            yield from _names(target, None if owner is None else (*owner, "*"))
            return
        called = self._module.qualified_names(iterable.func)
        given = [one.value for one in iterable.args]
        owner = self.path(iterable.func.value) if isinstance(iterable.func, cst.Attribute) else None
        if owner is not None and m.matches(iterable.func, m.Attribute(attr=m.Name("values"))):
            yield from _names(target, (*owner, "*"))
        elif owner is not None and m.matches(iterable.func, m.Attribute(attr=m.Name("items"))) and len(parts) == 2:
            yield from (*_names(parts[0], None), *_names(parts[1], (*owner, "*")))
        elif called == {"builtins.enumerate"} and len(parts) == 2 and given:
            yield from (*_names(parts[0], None), *self._elements(parts[1], given[0]))
        elif called == {"builtins.zip"} and len(parts) == len(given):
            for part, one in zip(parts, given, strict=True):
                yield from self._elements(part, one)
        else:
            yield from _names(target, None)

    def _stored(self, call: cst.Call, path: Path) -> set[str]:
        """Containers in which the copy takes the place of what was copied (``batch[k] = batch[k].to(device)``)."""
        statement = statement_of(self._module, call)
        targets: list[cst.BaseExpression] = []
        if isinstance(statement, cst.Assign):
            targets += [one.target for one in statement.targets]
        found = set()
        while targets:
            target = targets.pop()
            if isinstance(target, cst.Tuple | cst.List):
                targets += [one.value for one in target.elements]
            elif isinstance(target, cst.Subscript | cst.Attribute) and self.path(target) == path:
                base: cst.BaseExpression = target
                while isinstance(base, cst.Subscript | cst.Attribute):
                    base = base.value
                found |= {base.value} if isinstance(base, cst.Name) else set()
        return found

    def _only_read(self, node: cst.CSTNode) -> bool:
        """Whether what is done with a value can neither write to its memory nor give it to something that could."""
        parent = self._module.parents[node]
        if isinstance(parent, cst.Attribute):
            return _READS.fullmatch(parent.attr.value) is not None
        if isinstance(parent, cst.Arg):
            return is_call_of(self._module, self._module.parents[parent], _READING)
        if isinstance(parent, cst.Element):
            around = self._module.parents[parent]
            node, parent = around, self._module.parents[around]
        if isinstance(parent, cst.Assign):  # to other names, which are looked at as well
            kinds = (cst.Tuple, cst.List) if isinstance(node, cst.Tuple) else (cst.Name, cst.Tuple, cst.List)
            return all(isinstance(one.target, kinds) for one in parent.targets)
        if isinstance(parent, cst.For | cst.CompFor):
            return parent.iter is node
        reading = cst.Index | cst.Comparison | cst.ComparisonTarget | cst.BinaryOperation | cst.Del
        return isinstance(parent, reading | cst.FormattedStringExpression)


def _names(target: cst.CSTNode, path: Path | None) -> Iterator[tuple[str, Path | None]]:
    """Names in a target, with what each is bound to when ``target`` is bound to ``path``."""
    if isinstance(target, cst.Name):
        yield target.value, path
    elif isinstance(target, cst.Tuple | cst.List):
        starred = False
        for position, element in enumerate(target.elements):
            starred = starred or isinstance(element, cst.StarredElement)
            key = "*" if starred else str(position)
            yield from _names(element.value, None if path is None else (*path, key))


def _key(node: cst.Subscript) -> str:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
        return repr(index.value.evaluated_value)
    return index.value.value if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer) else "*"


def _overlap(one: Path, other: Path) -> bool:
    return all(a == b or "*" in (a, b) for a, b in zip(one, other, strict=False))
