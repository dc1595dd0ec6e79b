"""Where a loop over a loader waits for the device in every step: ``.item()``, ``.cpu()``, ``.tolist()``, ``float(…)``.

What is on the device is known from the loop itself: parts of the batch that it moves there, and what is computed from
them. A loop that moves nothing is not spoken of, for on a CPU nothing waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import moved_to, names_device
from chirp_migrate.analysis.loaders.loader_names import Loader, LoaderNames
from chirp_migrate.analysis.loops.batch_names import Batch, statement_of
from chirp_migrate.syntax.module import Module, code_children, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    Mention,
    assigned_pairs,
    holds,
    is_name,
    keywords,
    mention,
    own_nodes,
    target_names,
)

_WAITS = frozenset({"item", "tolist", "cpu", "numpy"})
#: What may stand behind a wait and belongs to it: ``.cpu().numpy().tolist()``.
_CHAINED = _WAITS | {"detach", "clone", "flatten", "ravel", "astype", "squeeze", "copy", "data"}
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
#: Methods and attributes whose value is not on the device.
_HERE = _WAITS | {"size", "dim", "numel", "nelement", "get_device", "shape", "dtype", "device", "ndim", "is_cuda"}
_HERE_TOO = frozenset(
    f"builtins.{one}" for one in ("len", "isinstance", "type", "str", "bool", "print", "range", "float", "int")
)
#: Words of conditions that do not hold in every step.
_SOMETIMES = re.compile(
    r"%|debug|verbose|\b_?log(s|ger|ging|_\w+)?\b|print|plot|visuali|save|step|iter\b|_?idx|index|interval|freq|\b(i|n)\b\s*[<=>]",
    re.IGNORECASE,
)
_ASSIGNED = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.Call)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


class WaitKind(Enum):
    """What the program waits for: one number, or a copy of a tensor."""

    NUMBER = "number"
    COPY = "copy"


@dataclass(frozen=True)
class Wait:
    """One expression that waits for the device.

    Attributes:
        node: the whole of it, what is chained behind included.
        value: the tensor that is waited for.
        kind: what it is waited for.
    """

    node: cst.Call
    value: cst.BaseExpression
    kind: WaitKind


def batch_loops(
    module: Module, project: Project, *, of_one_sample: bool = True
) -> Iterator[tuple[cst.For, list[cst.BaseExpression]]]:
    """Loops over loaders, each with the parts of its target that batches are bound to.

    Args:
        module: where they are.
        project: the backend it belongs to.
        of_one_sample: also loops whose batches surely hold one sample.
    """
    names = module.once(LoaderNames, project)
    for loop in module.find(cst.For):
        if loop.asynchronous is None:
            found = names.iterated(loop.target, loop.iter)
            if found and (of_one_sample or not all(_gives_single(loader) for _, loader in found)):
                yield loop, [target for target, _ in found]


def _gives_single(loader: Loader) -> bool:
    """Whether all calls that may have made a loader leave out the batch size or say 1."""
    sizes = []
    for _, call in loader.calls:
        given = keywords(call)
        positional = [a.value for a in call.args if a.keyword is None]
        if any(a.star for a in call.args) or "batch_sampler" in given:
            return False
        sizes.append(given.get("batch_size", positional[1] if len(positional) > 1 else None))
    literal = (size for size in sizes if size is not None and not is_name(size, "None"))
    return loader.complete and all(isinstance(size, cst.Integer) and size.evaluated_value == 1 for size in literal)


def is_each_step(module: Module, loop: cst.For, node: cst.CSTNode) -> bool:
    """Whether code in the body of a loop runs in every turn, as far as its conditions tell; not where errors end up."""
    child = node
    for ancestor in module.ancestors(node):
        if ancestor is loop:
            return child is loop.body
        if isinstance(ancestor, cst.ExceptHandler | cst.ExceptStarHandler | cst.FunctionDef | cst.Lambda):
            return False
        condition = ancestor.test if isinstance(ancestor, cst.If | cst.IfExp) and child is ancestor.body else None
        if condition is not None and _SOMETIMES.search(module.source(condition)):
            return False
        child = ancestor
    return False


class DeviceLoop:
    """A loop that moves its batches to a device, and what in it is there.

    Args:
        loop: a loop over a loader.
        targets: what its batches are bound to (see :func:`batch_loops`).
    """

    def __init__(self, module: Module, loop: cst.For, targets: list[cst.BaseExpression]) -> None:
        self._module, self.loop = module, loop
        self._batch = Batch(module, loop, targets)
        #: Name → where it is bound (offset), and whether to something on the device.
        self._bound: dict[str, list[tuple[int, bool]]] = {}
        if self.moves:
            nodes = [one for one in own_nodes(loop.body) if isinstance(one, _ASSIGNED)]
            for node in sorted(nodes, key=lambda one: module.span(one)[0]):
                self._read(node)

    @cached_property
    def moves(self) -> dict[cst.CSTNode, cst.BaseExpression]:
        """Calls that move a part of the batch to a device, each with that device."""
        found: dict[cst.CSTNode, cst.BaseExpression] = {}
        for call in own_nodes(self.loop.body):
            if not isinstance(call, cst.Call):
                continue
            device = moved_to(self._module, call)
            parts: list[cst.CSTNode] = [call.func]
            if device is None:  # to_device(batch, device)
                device = next((one.value for one in call.args if names_device(self._module, one.value)), None)
                parts = [one.value for one in call.args]
            names = (name for part in parts for name in walk(part) if isinstance(name, cst.Name))
            if device is not None and any(
                mention(self._module, one) is Mention.READ and self._batch.path(one) is not None for one in names
            ):
                found[call] = device
        return found

    def waits(self) -> list[Wait]:
        """What waits for the device in every step, in order of the text."""
        found: dict[cst.CSTNode, Wait] = {}
        for call in own_nodes(self.loop.body):
            value = self._waited_for(call) if isinstance(call, cst.Call) else None
            if not isinstance(call, cst.Call) or value is None or not is_each_step(self._module, self.loop, call):
                continue
            whole, methods = self._chain(call)
            number = not isinstance(call.func, cst.Attribute) or "item" in methods
            found[whole] = Wait(whole, value, WaitKind.NUMBER if number else WaitKind.COPY)
        return sorted(found.values(), key=lambda one: self._module.span(one.node)[0])

    def _waited_for(self, call: cst.Call) -> cst.BaseExpression | None:
        """The tensor on the device that a call waits for."""
        if isinstance(call.func, cst.Attribute):
            value = call.func.value
            return value if call.func.attr.value in _WAITS and self.is_there(value) else None
        if len(call.args) == 1 and not call.args[0].star and self._module.qualified_names(call.func) & _NUMBERS:
            return call.args[0].value if self.is_there(call.args[0].value) else None
        return None

    def _chain(self, call: cst.Call) -> tuple[cst.Call, list[str]]:
        """The longest chain of such calls that starts with one, and its methods."""
        methods = [call.func.attr.value] if isinstance(call.func, cst.Attribute) else []
        while methods and isinstance(parent := self._module.parents[call], cst.Attribute):
            around = self._module.parents[parent]
            if parent.attr.value not in _CHAINED or not isinstance(around, cst.Call) or around.func is not parent:
                break
            methods.append(parent.attr.value)
            call = around
        return call, methods

    def is_there(self, node: cst.CSTNode) -> bool:
        """Whether the value of an expression in the loop is on the device, or computed from what is."""
        if node in self.moves:
            return True
        if isinstance(node, cst.Name):
            return self._is_name_there(node)
        if isinstance(node, cst.Attribute):
            return node.attr.value not in _HERE and self.is_there(node.value)
        if isinstance(node, cst.Call):
            if isinstance(node.func, cst.Attribute):
                if node.func.attr.value in _HERE or self._is_to_cpu(node):
                    return False
                if self.is_there(node.func.value):
                    return True
            elif self._module.qualified_names(node.func) & _HERE_TOO:
                return False
            return any(self.is_there(one.value) for one in node.args)
        if isinstance(node, cst.Lambda | cst.SimpleString | cst.FormattedString):
            return False
        if isinstance(node, cst.Comparison) and any(
            isinstance(one.operator, cst.In | cst.NotIn | cst.Is | cst.IsNot) for one in node.comparisons
        ):
            return False
        if isinstance(node, cst.CompFor):
            return False
        if isinstance(node, _COMPREHENSIONS):
            parts = [node.key, node.value] if isinstance(node, cst.DictComp) else [node.elt]
            return any(self.is_there(one) for one in parts)
        return any(self.is_there(one) for one in code_children(node))

    def _is_to_cpu(self, call: cst.Call) -> bool:
        first = call.args[0].value if call.args else None
        return isinstance(first, cst.SimpleString) and first.evaluated_value == "cpu"

    def _is_name_there(self, name: cst.Name) -> bool:
        place = self._module.span(name)[0]
        for ancestor in self._module.ancestors(name):
            if ancestor is self.loop:
                break
            if isinstance(ancestor, _COMPREHENSIONS):
                clause: cst.CompFor | None = ancestor.for_in
                while clause is not None:
                    if name.value in target_names(clause.target) and not holds(self._module, clause.iter, name):
                        return self._element_is_there(clause.target, clause.iter, name.value)
                    clause = clause.inner_for_in
        before = [there for offset, there in self._bound.get(name.value, ()) if offset <= place]
        return bool(before) and before[-1]

    def _read(self, node: cst.CSTNode) -> None:
        """Remember what an assignment, or an inner loop, binds, and what is collected."""
        end = self._module.span(node)[1]
        if isinstance(node, cst.Assign):
            for target in node.targets:
                self._assign(target.target, node.value, end)
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value, end)
        elif isinstance(node, cst.Call):
            match node.func:
                case cst.Attribute(value=cst.Name() as grown, attr=cst.Name(value="append" | "extend")):
                    if any(self.is_there(one.value) for one in node.args):
                        self._bind(grown, True, end)
        elif isinstance(node, cst.AugAssign):
            if self.is_there(node.value):
                self._bind(node.target, True, end)
        elif isinstance(node, cst.For):
            for name in target_names(node.target):
                there = self._element_is_there(node.target, node.iter, name)
                self._bound.setdefault(name, []).append((self._module.span(node.body)[0], there))

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression, offset: int) -> None:
        for one, given in assigned_pairs(target, value):
            self._bind(one, self.is_there(given), offset)

    def _bind(self, target: cst.BaseExpression, there: bool, offset: int) -> None:
        if isinstance(target, cst.Subscript | cst.Attribute):
            # A container that holds something of the device now; it may hold more that is not.
            base: cst.BaseExpression = target
            while isinstance(base, cst.Subscript | cst.Attribute):
                base = base.value
            if there and isinstance(base, cst.Name) and base.value != "self":
                self._bound.setdefault(base.value, []).append((offset, True))
            return
        for name in target_names(target):
            self._bound.setdefault(name, []).append((offset, there))

    def _element_is_there(self, target: cst.BaseExpression, iterable: cst.BaseExpression, name: str) -> bool:
        """Whether a name in the target of an inner loop gets something that is on the device."""
        parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        if isinstance(iterable, cst.Call):
            called = self._module.qualified_names(iterable.func)
            given = [one.value for one in iterable.args]
            if called == {"builtins.enumerate"} and len(parts) == 2 and given:
                return name in target_names(parts[1]) and self._element_is_there(parts[1], given[0], name)
            if called == {"builtins.zip"} and len(parts) == len(given):
                pairs = zip(parts, given, strict=True)
                return any(name in target_names(one) and self._element_is_there(one, it, name) for one, it in pairs)
            method = iterable.func.attr.value if isinstance(iterable.func, cst.Attribute) else ""
            if method == "items" and len(parts) == 2 and name in target_names(parts[0]):
                return False
        return self.is_there(iterable)

    def statement(self, wait: Wait) -> cst.CSTNode:
        """The statement that a wait is part of."""
        return statement_of(self._module, wait.node)
