"""Where a loop over a loader waits for the device in every step: ``.item()``, ``.cpu()``, ``.tolist()``, ``float(…)``.

What is on the device is known from the loop itself: parts of the batch that it moves there, and what is computed from
them. A loop that moves nothing is not spoken of, for on a CPU nothing waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import moved_to, names_device
from chirp_migrate.analysis.loaders.loader_values import Loader, LoaderNames
from chirp_migrate.analysis.loops.batch_names import Batch
from chirp_migrate.analysis.loops.loop_names import LoopNames
from chirp_migrate.syntax.module import Module, code_children, find_in
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import Mention, is_name, keywords, mention, own_nodes

_WAITS = frozenset({"item", "tolist", "cpu", "numpy"})
#: What may stand behind a wait and belongs to it: ``.cpu().numpy().tolist()``.
_CHAINED = _WAITS | {"detach", "clone", "flatten", "ravel", "astype", "squeeze", "copy", "data"}
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
#: Methods and attributes whose value is not on the device.
_HERE = _WAITS | {"size", "dim", "numel", "nelement", "get_device", "shape", "dtype", "device", "ndim", "is_cuda"}
_HERE_TOO = frozenset(
    f"builtins.{one}" for one in ("len", "isinstance", "type", "str", "bool", "print", "range", "float", "int")
)
#: Comparisons that look at no values.
_IDENTITIES = (cst.In, cst.NotIn, cst.Is, cst.IsNot)
#: Words of conditions that do not hold in every step.
_SOMETIMES = re.compile(
    r"%|debug|verbose|\b_?log(s|ger|ging|_\w+)?\b|print|plot|visuali|save|step|iter\b|_?idx|index|interval|freq|\b(i|n)\b\s*[<=>]",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Wait:
    """One expression that waits for the device.

    Attributes:
        node: the whole of it, what is chained behind included.
        value: the tensor that is waited for.
        is_number: whether it is waited for one number, and not for a copy of a tensor.
    """

    node: cst.Call
    value: cst.BaseExpression
    is_number: bool


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


class DeviceLoop(LoopNames[bool]):
    """A loop that moves its batches to a device, and what in it is there.

    Args:
        loop: a loop over a loader.
        targets: what its batches are bound to (see :func:`batch_loops`).
    """

    def __init__(self, module: Module, loop: cst.For, targets: list[cst.BaseExpression]) -> None:
        super().__init__(module, loop, False)
        self.loop = loop
        self._batch = Batch(module, loop, targets)
        if self.moves:
            self._read_body()

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
            names = (name for part in parts for name in find_in(part, cst.Name))
            if device is not None and any(
                mention(self._module, one) is Mention.READ and self._batch.value(one) is not None for one in names
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
            is_number = not isinstance(call.func, cst.Attribute) or "item" in methods
            found[whole] = Wait(whole, value, is_number)
        return sorted(found.values(), key=lambda one: self._module.span(one.node)[0])

    def _waited_for(self, call: cst.Call) -> cst.BaseExpression | None:
        """The tensor on the device that a call waits for."""
        if isinstance(call.func, cst.Attribute):
            value = call.func.value
            return value if call.func.attr.value in _WAITS and self.value(value) else None
        if len(call.args) == 1 and not call.args[0].star and self._module.qualified_names(call.func) & _NUMBERS:
            return call.args[0].value if self.value(call.args[0].value) else None
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

    def value(self, node: cst.CSTNode) -> bool:
        """Whether the value of an expression in the loop is on the device, or computed from what is."""
        if node in self.moves:
            return True
        match node:
            case cst.Name():
                return self._named(node)
            case cst.Attribute(value=owner, attr=cst.Name(value=name)):
                return name not in _HERE and self.value(owner)
            case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))) if name in _HERE or self._is_to_cpu(node):
                return False
            case cst.Call(func=cst.Attribute(value=owner), args=args):
                return self.value(owner) or any(self.value(one.value) for one in args)
            case cst.Call(func=function, args=args):
                is_here = bool(self._module.qualified_names(function) & _HERE_TOO)
                return not is_here and any(self.value(one.value) for one in args)
            case cst.Comparison(comparisons=[*asked]) if any(isinstance(one.operator, _IDENTITIES) for one in asked):
                return False
            case cst.Lambda() | cst.SimpleString() | cst.FormattedString() | cst.CompFor():
                return False
        return any(self.value(one) for one in code_children(node))

    def _is_to_cpu(self, call: cst.Call) -> bool:
        first = call.args[0].value if call.args else None
        return isinstance(first, cst.SimpleString) and first.evaluated_value == "cpu"

    def _part(self, value: bool, position: str) -> bool:
        return value

    def _each(self, iterable: cst.BaseExpression) -> bool:
        return self.value(iterable)

    def _read(self, node: cst.CSTNode) -> None:
        super()._read(node)
        match node:
            case cst.Call(func=cst.Attribute(value=cst.Name() as grown, attr=cst.Name(value="append" | "extend"))):
                if any(self.value(one.value) for one in node.args):
                    self._give(grown, True, node)
            case cst.AugAssign() if self.value(node.value):
                self._give(node.target, True, node)

    def _give(self, target: cst.BaseExpression, value: bool, node: cst.CSTNode) -> None:
        if not isinstance(target, cst.Subscript | cst.Attribute):
            super()._give(target, value, node)
            return
        # A container that holds something of the device now; it may hold more that is not.
        base: cst.BaseExpression = target
        while isinstance(base, cst.Subscript | cst.Attribute):
            base = base.value
        if value and isinstance(base, cst.Name) and base.value != "self":
            super()._give(base, True, node)
