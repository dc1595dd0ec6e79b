"""What a loop does with its batches before they are on the device: moves them right away, or uses them as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.datasets.collecting import is_read_outside
from chirp_migrate.analysis.devices.device_moves import is_dtype, moved_to
from chirp_migrate.analysis.loops.batch_names import Batch, Path
from chirp_migrate.analysis.loops.loop_names import statement_of
from chirp_migrate.syntax.module import Module, find_in
from chirp_migrate.syntax.queries import Mention, mention

#: Methods and attributes that tell of a tensor what is the same on every device.
_SAID = frozenset({"size", "dim", "ndimension", "numel", "nelement", "shape", "dtype", "ndim", "keys"})
#: Methods that change shape or type: what they give, the device gives, too.
_RESHAPED = frozenset(
    {"float", "double", "half", "bfloat16", "long", "int", "bool", "type", "unsqueeze", "squeeze", "view", "reshape"}
    | {"permute", "transpose", "contiguous", "flatten"}
)
_ASKED = frozenset({"builtins.len", "builtins.isinstance", "builtins.type", "builtins.hasattr", "torch.is_tensor"})
_THROUGH = frozenset({"builtins.enumerate", "builtins.zip"})
_LOOPS = (cst.For, cst.CompFor)
_COMPARED = (cst.In, cst.NotIn, cst.Is, cst.IsNot)


@dataclass(frozen=True)
class BatchUses:
    """What a loop does with the batches that it is given.

    Attributes:
        devices: where it moves parts of them, as it is written.
        problem: why batches that come on the device already could be noticed; ``None`` when they could not.
    """

    devices: tuple[cst.BaseExpression, ...]
    problem: str | None


def batch_uses(module: Module, loop: cst.For, target: cst.BaseExpression) -> BatchUses:
    """What the body of ``loop`` does with the batches that are bound to ``target``, a part of the loop's own target."""
    return _Reading(module, loop, target).uses()


class _Reading:
    def __init__(self, module: Module, loop: cst.For, target: cst.BaseExpression) -> None:
        self._module, self._loop, self._target = module, loop, target
        self._batch = Batch(module, loop, [target])
        self._devices: list[cst.BaseExpression] = []
        #: From where on a part of the batch is a copy on the device, that took its place in its container.
        self._replaced: list[tuple[int, Path]] = []

    def uses(self) -> BatchUses:
        problems = []
        for name in sorted(find_in(self._loop.body, cst.Name), key=lambda one: self._module.span(one)[0]):
            if mention(self._module, name) is not Mention.READ or self._batch.value(name) is None:
                continue
            outer = self._outermost(name)
            path = self._batch.value(outer)
            if path is None or self._is_replaced(outer, path):
                continue
            problem = self._problem(outer, path)
            if problem is not None:
                problems.append(problem)
        problems += self._after_the_loop()
        return BatchUses(tuple(self._devices), problems[0] if problems else None)

    def _outermost(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The longest chain of keys, positions and attributes that starts with a name."""
        while True:
            parent = self._module.parents[node]
            if isinstance(parent, cst.Subscript) and parent.value is node:
                node = parent
            elif isinstance(parent, cst.Attribute) and self._batch.value(parent) is not None:
                around = self._module.parents[parent]
                if isinstance(around, cst.Call) and around.func is parent:
                    return node
                node = parent
            else:
                return node

    def _is_replaced(self, node: cst.CSTNode, path: Path) -> bool:
        place = self._module.span(node)[0]
        return any(offset <= place and _covers(moved, path) for offset, moved in self._replaced)

    def _problem(self, node: cst.BaseExpression, path: Path) -> str | None:
        """Why a use of a part of the batch could notice where it is; moves are remembered."""
        parent = self._module.parents[node]
        used = f"`{_short(self._module, node)}` is used as it comes from the loader"
        if isinstance(parent, cst.Attribute):
            if parent.attr.value in _SAID:
                return None
            call = self._module.parents[parent]
            if not isinstance(call, cst.Call) or call.func is not parent:
                return used
            return self._called(
                call, path, f"`{_short(self._module, call)}` needs the batch as it comes from the loader"
            )
        if isinstance(parent, cst.Element | cst.Assign):
            return None if self._is_taken_apart(node) else used
        if isinstance(parent, _LOOPS) and parent.iter is node:
            return None
        if isinstance(parent, cst.Arg):
            called = self._module.parents[parent]
            names = self._module.qualified_names(called.func) if isinstance(called, cst.Call) else set()
            if names and (names <= _ASKED or (names <= _THROUGH and self._is_looped(called))):
                return None
            return used
        if isinstance(parent, cst.Index):  # for key in batch: batch[key]
            subscript = self._module.parents[self._module.parents[parent]]
            keyed = isinstance(subscript, cst.Subscript) and self._batch.value(subscript.value) is not None
            return None if keyed else used
        if isinstance(parent, cst.IfExp) and _is_of_type(self._module, parent.test):
            return None
        if isinstance(parent, cst.Comparison | cst.ComparisonTarget):
            whole = parent if isinstance(parent, cst.Comparison) else self._module.parents[parent]
            assert isinstance(whole, cst.Comparison)
            return None if all(isinstance(one.operator, _COMPARED) for one in whole.comparisons) else used
        return None if isinstance(parent, cst.Del | cst.Expr | cst.AssignTarget) else used

    def _called(self, call: cst.Call, path: Path, used: str) -> str | None:
        """Why a method called on a part of the batch could notice where it is."""
        assert isinstance(call.func, cst.Attribute)
        method = call.func.attr.value
        device = moved_to(self._module, call)
        if device is not None:
            return self._moved(call, path, device)
        dtypes = [one.value for one in call.args]
        if method in _RESHAPED or (method == "to" and dtypes and all(is_dtype(self._module, one) for one in dtypes)):
            around = self._module.parents[call]
            outer = self._module.parents[around] if isinstance(around, cst.Attribute) else None
            return self._called(outer, path, used) if isinstance(outer, cst.Call) else used
        if method in ("items", "values"):
            return None if self._is_looped(call) else used
        return None if method in _SAID else used

    def _moved(self, call: cst.Call, path: Path, device: cst.BaseExpression) -> str | None:
        self._devices.append(device)
        statement, end = statement_of(self._module, call), 0
        child: cst.CSTNode = call
        for ancestor in self._module.ancestors(call):
            if ancestor is self._loop.body:
                break
            condition = ancestor.test if isinstance(ancestor, cst.If | cst.IfExp) else None
            conditional = condition is not None and child is not condition
            if conditional and condition is not None and not _is_of_type(self._module, condition):
                return f"`{_short(self._module, call)}` is only done under a condition"
            if isinstance(ancestor, cst.Try | cst.TryStar | cst.While | cst.Lambda | cst.FunctionDef):
                return f"`{_short(self._module, call)}` is not surely done for each batch"
            if isinstance(ancestor, cst.For):
                end = self._module.span(ancestor)[1]
            child = ancestor
        targets = [one.target for one in statement.targets] if isinstance(statement, cst.Assign) else []
        if any(isinstance(one, cst.Subscript | cst.Attribute) and self._batch.value(one) == path for one in targets):
            self._replaced.append((end or self._module.span(statement)[1], path))
        return None

    def _is_taken_apart(self, node: cst.CSTNode) -> bool:
        """Whether a value is only bound to names, which are looked at as well."""
        parent = self._module.parents[node]
        while isinstance(parent, cst.Element | cst.Tuple | cst.List):
            parent = self._module.parents[parent]
        if not isinstance(parent, cst.Assign):
            return False
        return all(_only_names(one.target) for one in parent.targets)

    def _is_looped(self, call: cst.CSTNode) -> bool:
        parent = self._module.parents[call]
        if isinstance(parent, cst.Arg):
            around = self._module.parents[parent]
            through = isinstance(around, cst.Call) and self._module.qualified_names(around.func) <= _THROUGH
            return through and self._is_looped(around)
        return isinstance(parent, _LOOPS) and parent.iter is call

    def _after_the_loop(self) -> Iterator[str]:
        bound = {name for one in find_in(self._loop.body, cst.AssignTarget) for name in names_in_code(one)}
        for name in names_in_code(self._target) - bound:
            if is_read_outside(self._module, self._loop, name):
                yield f"`{name}` may be used again behind the loop"


def _covers(moved: Path, path: Path) -> bool:
    """Whether all that lies at ``path`` lies at ``moved``."""
    same = all(one in (other, "*") for one, other in zip(moved, path, strict=False))
    return same and all(one == "*" for one in moved[len(path) :])


def _only_names(target: cst.CSTNode) -> bool:
    if isinstance(target, cst.Tuple | cst.List):
        return all(_only_names(one.value) for one in target.elements)
    return isinstance(target, cst.Name)


def _is_of_type(module: Module, test: cst.BaseExpression) -> bool:
    """Whether a condition asks if something is a tensor, or can be moved."""
    names = module.qualified_names(test.func) if isinstance(test, cst.Call) else set()
    return bool(names) and names <= {"builtins.isinstance", "builtins.hasattr", "torch.is_tensor"}


def _short(module: Module, node: cst.CSTNode) -> str:
    return " ".join(module.source(node).split())
