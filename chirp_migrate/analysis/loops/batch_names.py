"""Find the expressions whose value is the batch, or an unchanged part of the batch, in a loop over a loader."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.analysis.dataflow.read_outside import is_read_outside_loop
from chirp_migrate.analysis.dataflow.value_flow import (
    AttributeRead,
    CallArgument,
    ContainerElement,
    IteratedValue,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.analysis.loops.loop_names import LoopNames, innermost_statement
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.queries import is_read, leading_variable_name

#: Methods and attributes that read a tensor, or a container of tensors, and do not return a view.
_READS = re.compile(
    r"to|cuda|size|shape|dim|ndim|numel|nelement|device|dtype|items|keys|values|item|tolist|sum|mean|max|min|any|all"
    r"|argmax|type|clone|is_cuda|is_pinned|eq|ne"
)
_READING = re.compile(r"builtins\.(len|isinstance|print|str|int|float|bool|type|id|range)|torch\.is_tensor")

#: The place of a value in a batch, as a path of keys and positions; ``*`` means any position.
Path = tuple[str, ...]


class BatchExpressions(LoopNames[Path | None]):
    """Find the expressions in the body of one loop that are parts of the loop's batch.

    Args:
        module: the module of the loop.
        loop: the loop.
        targets: the parts of the loop's target that receive batches, one for each loader of the loop.
    """

    def __init__(self, module: Module, loop: cst.For, targets: list[cst.BaseExpression]) -> None:
        super().__init__(module, loop, None)
        for position, target in enumerate(targets):
            path = (f"#{position}",) if len(targets) > 1 else ()
            self._bind(self._names(target, path), module.span(loop.target)[0], loop)
        self._read_body()

    def value(self, node: cst.CSTNode) -> Path | None:
        """Return the place in the batch from which an expression takes its unchanged value; None without such a place.

        The place is a path of keys and positions. For ``batch["x"][0]``, the place is ``("'x'", "0")``.
        """
        match node:
            case cst.Name():
                return self._named(node)
            case cst.Subscript(value=owner):
                return self._fact_of_part(self.value(owner), _index_key(node))
            case cst.Attribute(value=owner, attr=cst.Name(value=name)) if not _READS.fullmatch(name):
                return self._fact_of_part(self.value(owner), f".{name}")
        return None

    def why_written_after(self, call: cst.Call, path: Path) -> str | None:
        """Return why code may change a tensor before a non-blocking copy of the tensor ends; None if the copy is safe.

        ``call`` makes the copy. ``path`` is the place of the tensor in the batch.
        """
        start, end = self._module.span(call)
        inner = [a for a in self._module.ancestors(call) if isinstance(a, cst.For | cst.While)]
        inner = inner[: inner.index(self._loop)]
        statement = innermost_statement(self._module, call)
        begin = self._module.span(inner[-1] if inner else statement)[0]
        stored = self._updated_containers(call, path)
        for name in walk_code(self._loop.body):
            if not isinstance(name, cst.Name) or name.value in stored or not is_read(self._module, name):
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
                return (
                    f"`{self._module.source(outer).strip()}` is used again, and may change before an asynchronous copy "
                    "ends"
                )
        for bound in sorted(self._bound.keys() - stored):
            kept = any(_overlap(one, path) for one in self._values_of_name(bound, {self._loop.body}, statement))
            if kept and is_read_outside_loop(self._module, self._loop, bound):
                return f"`{bound}` may be used again after the loop, and may change before an asynchronous copy ends"
        return None

    def _paths(self, node: cst.CSTNode, moving: cst.CSTNode) -> Iterator[Path]:
        """Yield the places in the batch that ``node`` may refer to; ``node`` comes after the statement ``moving``."""
        if isinstance(node, cst.Subscript):
            yield from ((*one, _index_key(node)) for one in self._paths(node.value, moving))
            return
        path = self.value(node)
        if path is not None:
            yield path
        elif isinstance(node, cst.Name):
            yield from self._values_of_name(
                node.value, {*self._module.ancestors(node)}, moving, self._module.span(node)[0]
            )

    def _values_of_name(
        self, name: str, around: set[cst.CSTNode], moving: cst.CSTNode, place: int = sys.maxsize
    ) -> Iterator[Path]:
        """Yield the places in the batch that ``name`` may refer to at the offset ``place``.

        Args:
            name: the name of a variable.
            around: the blocks around the offset. A binding in one of these blocks hides earlier bindings.
            moving: the statement with the copy. A binding by this statement hides earlier bindings, too.
            place: offset in the text; by default, the end of the loop.
        """
        for bound in reversed(self._bound.get(name, ())):
            if bound.offset <= place:
                if bound.value is not None:
                    yield bound.value
                if bound.block in around or bound.statement is moving:
                    return

    def _earlier_paths(self, node: cst.CSTNode) -> Iterator[Path]:
        """Yield the places in the batch of an earlier iteration that ``node`` may refer to.

        An expression may refer to an earlier batch if the present iteration has not yet assigned the variable, or if an
        inner function reads the variable.
        """
        functions = (cst.FunctionDef, cst.Lambda)
        name = leading_variable_name(node)
        around = [a for a in self._module.ancestors(node) if isinstance(a, (cst.For, *functions))]
        later = any(isinstance(one, functions) for one in around[: around.index(self._loop)])
        bound = self._bound.get(name, [])
        if later or not any(one.offset <= self._module.span(node)[0] for one in bound):
            yield from (one.value for one in bound if one.value is not None)

    def _fact_of_part(self, value: Path | None, position: str) -> Path | None:
        return None if value is None else (*value, position)

    def _fact_of_item(self, iterable: cst.BaseExpression) -> Path | None:
        match iterable:
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="values"))):
                return self._fact_of_part(self.value(owner), "*")
            case cst.Call():
                return None
        return self._fact_of_part(self.value(iterable), "*")

    def _read(self, node: cst.CSTNode) -> None:
        super()._read(node)
        if isinstance(node, cst.AugAssign):
            self._record_fact(node.target, None, node)
        elif isinstance(node, cst.AsName):
            self._bind(self._names(node.name, None), self._module.span(node)[0], node)

    def _updated_containers(self, call: cst.Call, path: Path) -> set[str]:
        """Return the names of containers in which the copy that ``call`` makes replaces the original tensor.

        For example, the result for ``batch[k] = batch[k].to(device)`` is ``{"batch"}``.
        """
        statement = innermost_statement(self._module, call)
        if not isinstance(statement, cst.Assign):
            return set()
        items = (part for target in statement.targets for part in _single_targets(target.target))
        return {
            leading_variable_name(item) for item in items if not isinstance(item, cst.Name) and self.value(item) == path
        }

    def _only_read(self, node: cst.CSTNode) -> bool:
        """Return whether the code around an expression cannot write to the memory of the expression's value."""
        step = next_use_of_value(self._module, node)
        match step:
            case AttributeRead(cst.Attribute(attr=cst.Name(value=name))):
                return _READS.fullmatch(name) is not None
            case CallArgument(_, call):
                return is_call_of(self._module, call, _READING)
            case ContainerElement(cst.Element(), display):
                node, step = display, next_use_of_value(self._module, display)
        match step:
            case IteratedValue():
                return True
            case ValueAssignment(targets, cst.Assign()):
                # An assignment is allowed here, because the caller also checks the uses of the assigned names.
                kinds = (cst.Tuple, cst.List) if isinstance(node, cst.Tuple) else (cst.Name, cst.Tuple, cst.List)
                return all(isinstance(target, kinds) for target in targets)
        reading = cst.Index | cst.Comparison | cst.ComparisonTarget | cst.BinaryOperation | cst.Del
        return isinstance(self._module.parents[node], reading | cst.FormattedStringExpression)


def _single_targets(target: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the single targets in an assignment target, which may be a nested tuple or list."""
    if not isinstance(target, cst.Tuple | cst.List):
        yield target
        return
    for element in target.elements:
        yield from _single_targets(element.value)


def _index_key(node: cst.Subscript) -> str:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
        return repr(index.value.evaluated_value)
    return index.value.value if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer) else "*"


def _overlap(one: Path, other: Path) -> bool:
    return all(a == b or "*" in (a, b) for a, b in zip(one, other, strict=False))
