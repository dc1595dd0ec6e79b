"""What a loop does with its batches before they are on the device: moves them right away, or uses them as they come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.read_outside import is_read_outside
from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.dataflow.value_flow import Assigned, Chosen, Given, Iterated, Kept, Member, step_of
from chirp_migrate.analysis.devices.device_moves import is_dtype, moved_to
from chirp_migrate.analysis.loops.batch_names import Batch, Path
from chirp_migrate.analysis.loops.loop_names import statement_of
from chirp_migrate.syntax.module import Module, find_in
from chirp_migrate.syntax.queries import Mention, mention, one_line

#: Methods and attributes that tell of a tensor what is the same on every device.
_SAID = frozenset({"size", "dim", "ndimension", "numel", "nelement", "shape", "dtype", "ndim", "keys"})
#: Methods that change shape or type: what they give, the device gives, too.
_RESHAPED = frozenset(
    {"float", "double", "half", "bfloat16", "long", "int", "bool", "type", "unsqueeze", "squeeze", "view", "reshape"}
    | {"permute", "transpose", "contiguous", "flatten"}
)
_ASKED = frozenset({"builtins.len", "builtins.isinstance", "builtins.type", "builtins.hasattr", "torch.is_tensor"})
_THROUGH = frozenset({"builtins.enumerate", "builtins.zip"})
_COMPARED = (cst.In, cst.NotIn, cst.Is, cst.IsNot)


class BatchUses:
    """What the body of ``loop`` does with the batches that are bound to ``target``, a part of the loop's own target.

    Attributes:
        devices: where it moves parts of them, as it is written.
        problem: why batches that come on the device already could be noticed; ``None`` when they could not.
    """

    def __init__(self, module: Module, loop: cst.For, target: cst.BaseExpression) -> None:
        self._module, self._loop = module, loop
        self._batch = Batch(module, loop, [target])
        #: From where on a part of the batch is a copy on the device, that took its place in its container.
        self._replaced: list[tuple[int, Path]] = []
        self.devices: list[cst.BaseExpression] = []
        self.problem = next(iter([*self._problems(), *self._after_the_loop(target)]), None)

    def _problems(self) -> Iterator[str]:
        names = [node for node in find_in(self._loop.body, cst.Name) if mention(self._module, node) is Mention.READ]
        for name in sorted(names, key=lambda one: self._module.span(one)[0]):
            if self._batch.value(name) is None:
                continue
            outer = self._outermost(name)
            path, place = self._batch.value(outer), self._module.span(outer)[0]
            replaced = path is not None and any(
                offset <= place and _covers(moved, path) for offset, moved in self._replaced
            )
            problem = None if path is None or replaced else self._problem(outer, path)
            if problem is not None:
                yield problem

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

    def _problem(self, node: cst.BaseExpression, path: Path) -> str | None:
        """Why a use of a part of the batch could notice where it is; moves are remembered."""
        module = self._module
        used = f"`{one_line(module, node)}` is used as it comes from the loader"
        match step_of(module, node):
            case Member(cst.Attribute(attr=cst.Name(value=name)) as attribute):
                call = module.parents[attribute]
                if name in _SAID or not isinstance(call, cst.Call) or call.func is not attribute:
                    return None if name in _SAID else used
                needed = f"`{one_line(module, call)}` needs the batch as it comes from the loader"
                return self._called(call, path, needed)
            case Kept(cst.Element()) | Assigned(_, cst.Assign()):
                return None if self._is_taken_apart(node) else used
            case Given(_, call):
                names = module.qualified_names(call.func)
                asked = bool(names) and (names <= _ASKED or (names <= _THROUGH and self._is_looped(call)))
                return None if asked else used
            case Chosen(cst.IfExp(test=test)) if _is_of_type(module, test):
                return None
            case Iterated():
                return None
        match parent := module.parents[node]:
            case cst.Index():  # for key in batch: batch[key]
                subscript = module.parents[module.parents[parent]]
                keyed = isinstance(subscript, cst.Subscript) and self._batch.value(subscript.value) is not None
                return None if keyed else used
            case cst.Comparison() | cst.ComparisonTarget():
                whole = parent if isinstance(parent, cst.Comparison) else module.parents[parent]
                compared = whole.comparisons if isinstance(whole, cst.Comparison) else ()
                return None if all(isinstance(one.operator, _COMPARED) for one in compared) else used
            case cst.Del() | cst.Expr() | cst.AssignTarget():
                return None
        return used

    def _called(self, call: cst.Call, path: Path, used: str) -> str | None:
        """Why a method called on a part of the batch could notice where it is."""
        assert isinstance(call.func, cst.Attribute)
        method = call.func.attr.value
        device = moved_to(self._module, call)
        if device is not None:
            return self._moved(call, path, device)
        dtypes = [argument.value for argument in call.args]
        if method in _RESHAPED or (method == "to" and dtypes and all(is_dtype(self._module, one) for one in dtypes)):
            around = self._module.parents[call]
            outer = self._module.parents[around] if isinstance(around, cst.Attribute) else None
            return self._called(outer, path, used) if isinstance(outer, cst.Call) else used
        if method in ("items", "values"):
            return None if self._is_looped(call) else used
        return None if method in _SAID else used

    def _moved(self, call: cst.Call, path: Path, device: cst.BaseExpression) -> str | None:
        self.devices.append(device)
        module, statement, end = self._module, statement_of(self._module, call), 0
        child: cst.CSTNode = call
        for ancestor in takewhile(lambda one: one is not self._loop.body, module.ancestors(call)):
            match ancestor:
                case cst.If(test=test) | cst.IfExp(test=test) if child is not test and not _is_of_type(module, test):
                    return f"`{one_line(module, call)}` is only done under a condition"
                case cst.Try() | cst.TryStar() | cst.While() | cst.Lambda() | cst.FunctionDef():
                    return f"`{one_line(module, call)}` is not surely done for each batch"
                case cst.For():
                    end = module.span(ancestor)[1]
            child = ancestor
        targets = [target.target for target in statement.targets] if isinstance(statement, cst.Assign) else []
        if any(isinstance(one, cst.Subscript | cst.Attribute) and self._batch.value(one) == path for one in targets):
            self._replaced.append((end or module.span(statement)[1], path))
        return None

    def _is_taken_apart(self, node: cst.CSTNode) -> bool:
        """Whether a value is only bound to names, which are looked at as well."""
        parent = self._module.parents[node]
        while isinstance(parent, cst.Element | cst.Tuple | cst.List):
            parent = self._module.parents[parent]
        return isinstance(parent, cst.Assign) and all(_only_names(target.target) for target in parent.targets)

    def _is_looped(self, call: cst.CSTNode) -> bool:
        match step_of(self._module, call):
            case Given(_, around):
                return self._module.qualified_names(around.func) <= _THROUGH and self._is_looped(around)
            case step:
                return isinstance(step, Iterated)

    def _after_the_loop(self, target: cst.BaseExpression) -> Iterator[str]:
        bound = {name for node in find_in(self._loop.body, cst.AssignTarget) for name in names_in_code(node)}
        for name in names_in_code(target) - bound:
            if is_read_outside(self._module, self._loop, name):
                yield f"`{name}` may be used again after the loop"


def _covers(moved: Path, path: Path) -> bool:
    """Whether all that lies at ``path`` lies at ``moved``."""
    same = all(one in (other, "*") for one, other in zip(moved, path, strict=False))
    return same and all(one == "*" for one in moved[len(path) :])


def _only_names(target: cst.CSTNode) -> bool:
    if isinstance(target, cst.Tuple | cst.List):
        return all(_only_names(element.value) for element in target.elements)
    return isinstance(target, cst.Name)


def _is_of_type(module: Module, test: cst.BaseExpression) -> bool:
    """Whether a condition asks if something is a tensor, or can be moved."""
    names = module.qualified_names(test.func) if isinstance(test, cst.Call) else set()
    return bool(names) and names <= {"builtins.isinstance", "builtins.hasattr", "torch.is_tensor"}
