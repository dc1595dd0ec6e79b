"""Find expressions that wait for the device in every step of a loop, such as ``.item()``, ``.cpu()`` and ``float(…)``.

A value is on the device if the value is a part of the batch that the loop moves to the device, or is computed from such
a part. Loops that move no batch are not reported, because code on the CPU does not wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import may_name_device, target_device
from chirp_migrate.analysis.loaders.loader_loops import loader_loops
from chirp_migrate.analysis.loaders.loader_values import LoaderValue
from chirp_migrate.analysis.loops.batch_names import BatchExpressions
from chirp_migrate.analysis.loops.loop_names import LoopNames, innermost_statement
from chirp_migrate.syntax.module import Module, code_children, find_nodes, walk_code
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    NameRole,
    called_method_name,
    find_nodes_in_scope,
    leading_variable_name,
    name_role,
)

_WAITS = frozenset({"item", "tolist", "cpu", "numpy"})
#: Methods that may follow a wait and belong to the same wait, as in ``.cpu().numpy().tolist()``.
_CHAINED = _WAITS | {"detach", "clone", "flatten", "ravel", "astype", "squeeze", "copy", "data"}
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
#: Methods and attributes whose value is not on the device.
_HERE = _WAITS | {"size", "dim", "numel", "nelement", "get_device", "shape", "dtype", "device", "ndim", "is_cuda"}
_HERE_TOO = frozenset(
    f"builtins.{one}" for one in ("len", "isinstance", "type", "str", "bool", "print", "range", "float", "int")
)
#: Comparisons that do not read the values of a tensor.
_IDENTITIES = (cst.In, cst.NotIn, cst.Is, cst.IsNot)
#: Words that show that a condition is true only in some steps, such as every hundredth step.
_SOMETIMES = re.compile(
    r"%|debug|verbose|\b_?log(s|ger|ging|_\w+)?\b|print|plot|visuali|save|step|iter\b|_?idx|index|interval|freq|\b(i|n)\b\s*[<=>]",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DeviceWait:
    """An expression that waits for the device.

    Attributes:
        node: the whole expression, including chained calls.
        value: the tensor that the expression waits for.
        is_number: whether the result is one number instead of a copy of a tensor.
    """

    node: cst.Call
    value: cst.BaseExpression
    is_number: bool


def runs_in_every_iteration(module: Module, loop: cst.For, node: cst.CSTNode) -> bool:
    """Return whether code in the body of a loop runs in every iteration.

    The result is False for code in an ``except`` block or inner function, and in an ``if`` whose condition contains a
    word such as ``step``, ``index`` or ``debug``. The analysis assumes that all other code runs in every iteration.
    """
    child = node
    for ancestor in module.ancestors(node):
        if ancestor is loop:
            return child is loop.body
        match ancestor:
            case cst.ExceptHandler() | cst.ExceptStarHandler() | cst.FunctionDef() | cst.Lambda():
                return False
            case cst.If(test=test, body=body) | cst.IfExp(test=test, body=body) if child is body:
                if _SOMETIMES.search(module.source(test)):
                    return False
        child = ancestor
    return False


def find_device_loops(module: Module, project: Project) -> Iterator[DeviceLoop]:
    """Yield the loops over loaders in which code moves the batches to a device."""
    for loop, loaders in loader_loops(module, project):
        there = DeviceLoop(module, loop, loaders)
        if there.moves:
            yield there


def has_wait_after_transfers(loop: DeviceLoop, transfers: Iterable[cst.Call]) -> bool:
    """Return whether the statement that makes a copy, or the next statement, waits for the end of the copy."""
    copies = list(transfers)
    return any(loop.waits_for(wait, copies) for wait in loop.waits())


class DeviceLoop(LoopNames[bool]):
    """A loop that moves its batches to a device, and the expressions in it whose values are on the device.

    Args:
        loop: a loop over loaders.
        loaders: the loaders of the loop, each with the target that receives its batches.

    Attributes:
        loaders: the loaders of the loop.
        moves: the calls that move a part of a batch, each with the device.
    """

    def __init__(self, module: Module, loop: cst.For, loaders: list[tuple[cst.BaseExpression, LoaderValue]]) -> None:
        super().__init__(module, loop, False)
        self.loop = loop
        self.loaders = [loader for _, loader in loaders]
        self.moves = dict(self._device_moves(BatchExpressions(module, loop, [target for target, _ in loaders])))
        if self.moves:
            self._read_body()

    def _device_moves(self, batch: BatchExpressions) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
        """Yield the calls that move a part of the batch to a device, each with the device."""
        for call in find_nodes_in_scope(self.loop.body, cst.Call):
            device = target_device(self._module, call)
            parts: list[cst.CSTNode] = [call.func]
            if device is None:  # to_device(batch, device)
                device = next((one.value for one in call.args if may_name_device(self._module, one.value)), None)
                parts = [argument.value for argument in call.args]
            names = (name for part in parts for name in find_nodes(part, cst.Name))
            if device is not None and any(
                name_role(self._module, name) is NameRole.READ and batch.value(name) is not None for name in names
            ):
                yield call, device

    def waits_for(self, wait: DeviceWait, copies: list[cst.Call]) -> bool:
        """Return whether ``wait``, in the statement of the copy or in the next statement, waits for one of ``copies``.

        The result is False if code calls anything other than tensor methods between the copy and the wait.
        """
        module = self._module
        statement, waiting = innermost_statement(module, copies[0]), innermost_statement(module, wait.node)
        calls = [wait.node, *find_nodes(wait.value, cst.Call)]
        if not all(
            isinstance(one.func, cst.Attribute) and self.value(one.func.value) for one in calls if one not in copies
        ):
            return False
        if waiting is statement:
            return any(copy in set(walk_code(wait.value)) for copy in copies)
        start, end = module.span(statement)[1], module.span(waiting)[0]
        names = {name.value for name in find_nodes(wait.value, cst.Name)}
        bound = {name.value for one in _targets(statement) for name in find_nodes(one, cst.Name)}
        return start <= end and not module.text[start:end].strip(" \t\r\n;") and not names.isdisjoint(bound)

    def waits(self) -> list[DeviceWait]:
        """Return the expressions that wait for the device in every step, in order of the text."""
        found: dict[cst.CSTNode, DeviceWait] = {}
        for call in find_nodes_in_scope(self.loop.body, cst.Call):
            value = self._waited_for(call)
            if value is not None and runs_in_every_iteration(self._module, self.loop, call):
                whole, methods = self._chain_of_waits(call)
                is_number = not isinstance(call.func, cst.Attribute) or "item" in methods
                found[whole] = DeviceWait(whole, value, is_number)
        return sorted(found.values(), key=lambda one: self._module.span(one.node)[0])

    def _waited_for(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the tensor on the device that a call waits for; None if the call does not wait."""
        match call:
            case cst.Call(func=cst.Attribute(value=tensor, attr=cst.Name(value=name))) if name in _WAITS:
                return tensor if self.value(tensor) else None
            case cst.Call(args=[cst.Arg(value=tensor, star="")]) if self._module.qualified_names(call.func) & _NUMBERS:
                return tensor if self.value(tensor) else None
        return None

    def _chain_of_waits(self, call: cst.Call) -> tuple[cst.Call, list[str]]:
        """Return the longest chain of method calls that begins with ``call`` and waits only once.

        For example, ``x.cpu().numpy()`` is such a chain, because only ``cpu`` waits. The second result contains the
        names of the methods, such as ``cpu`` and ``numpy``.
        """
        methods = [called_method_name(call)]
        while methods[0] and isinstance(parent := self._module.parents[call], cst.Attribute):
            around = self._module.parents[parent]
            if parent.attr.value not in _CHAINED or not isinstance(around, cst.Call) or around.func is not parent:
                break
            methods.append(parent.attr.value)
            call = around
        return call, methods

    def value(self, node: cst.CSTNode) -> bool:
        """Return whether the value of an expression in the loop is on the device."""
        if node in self.moves:
            return True
        match node:
            case cst.Name():
                return self._named(node)
            case cst.Attribute(value=owner, attr=cst.Name(value=name)):
                return name not in _HERE and self.value(owner)
            case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))) if name in _HERE:
                return False
            case cst.Call(func=cst.Attribute(), args=[cst.Arg(value=cst.SimpleString() as device), *_]) if (
                device.evaluated_value == "cpu"
            ):
                return False
            case cst.Call(func=cst.Attribute(value=owner), args=args):
                return self.value(owner) or any(self.value(argument.value) for argument in args)
            case cst.Call(func=function, args=args):
                is_here = bool(self._module.qualified_names(function) & _HERE_TOO)
                return not is_here and any(self.value(argument.value) for argument in args)
            case cst.Comparison(comparisons=[*asked]) if any(isinstance(one.operator, _IDENTITIES) for one in asked):
                return False
            case cst.Lambda() | cst.SimpleString() | cst.FormattedString() | cst.CompFor():
                return False
        return any(self.value(child) for child in code_children(node))

    def _fact_of_part(self, value: bool, position: str) -> bool:
        return value

    def _fact_of_item(self, iterable: cst.BaseExpression) -> bool:
        return self.value(iterable)

    def _read(self, node: cst.CSTNode) -> None:
        super()._read(node)
        match node:
            case cst.Call(func=cst.Attribute(value=cst.Name() as grown, attr=cst.Name(value="append" | "extend"))):
                if any(self.value(argument.value) for argument in node.args):
                    self._record_fact(grown, True, node)
            case cst.AugAssign() if self.value(node.value):
                self._record_fact(node.target, True, node)

    def _record_fact(self, target: cst.BaseExpression, value: bool, node: cst.CSTNode) -> None:
        if not isinstance(target, cst.Subscript | cst.Attribute):
            super()._record_fact(target, value, node)
            return
        # After an assignment to an item, the container has a value on the device, perhaps next to other values.
        name = leading_variable_name(target)
        if value and name not in ("", "self"):
            self._bind([(name, True)], self._module.span(node)[1], node)


def _targets(statement: cst.CSTNode) -> list[cst.BaseExpression]:
    return [one.target for one in statement.targets] if isinstance(statement, cst.Assign) else []
