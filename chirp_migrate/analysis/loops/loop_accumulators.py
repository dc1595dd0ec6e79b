"""Sums that a loop adds up from ``.item()``: whether they can stay on the device until the loop is over, to the bit.

A Python number plus ``tensor.item()`` in every step and a tensor that is added to on the device give the same number:

* for counts, ``(a == b).sum().item()`` into an integer: both are exact;
* for losses, ``loss.item()`` or ``loss.item() * n`` into a float: Python's float is a float64, so that the loss as
  float64, multiplied and added on the device, is rounded where Python rounds, in the same order. Divisions are not:
  PyTorch multiplies by the reciprocal on CUDA. Nor has every kind of device float64: CUDA and the CPU have.

Nothing may see the sum before the loop is over, and nothing else in the loop may wait for the device, or nothing would
be gained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TypeGuard

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_mentions
from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.known_names import PLAIN_DECORATOR, is_call_of, resolves_to
from chirp_migrate.analysis.loops.loop_losses import (
    NotProven,
    as_float64,
    has_run,
    lets_errors_pass,
    refuse_own_items,
    targets_in,
    value_in,
)
from chirp_migrate.analysis.loops.sync_points import DeviceLoop, Wait
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.module import Module, find_in
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    Mention,
    assigned_pairs,
    dotted,
    find_own,
    holds,
    is_integer,
    mention,
    method_called,
    one_line,
)

_CLOCKS = re.compile(r"(time|timeit|datetime)\..+|torch\.cuda\.Event")
_INSPECTS = frozenset(f"builtins.{one}" for one in ("locals", "vars", "globals", "eval", "exec"))
_SUM = re.compile(r"torch\.sum")
_OWN_EQUALITY = r"\bdef\s+(__eq__|__ne__|eq|ne)\b"
_OWN_SIZE = r"\bdef\s+(size|shape)\b|\bself\.(size|shape)\s*="
_EXACT = frozenset({"cpu", "cuda"})
#: Words for what goes ``backward()`` and has an ``item()``, and is no plain tensor.
_OTHER_TENSORS = ("opacus", "DTensor", "distribute_tensor", "loss_parallel", "__torch_function__", "__torch_dispatch__")


@dataclass(frozen=True)
class _Sum:
    """One ``name += …item()``.

    Attributes:
        suffix: what stands after the tensor then; nothing after counts.
    """

    name: str
    statement: cst.AugAssign
    wait: Wait
    suffix: str

    @property
    def is_count(self) -> bool:
        return not self.suffix


def summed_on_device(module: Module, project: Project, there: DeviceLoop, waits: list[Wait]) -> list[Edit]:
    """Edits after which the sums of a loop stay on the device until it is over.

    Args:
        there: the loop.
        waits: all that waits for the device in it, in every step.

    Raises:
        NotProven: where one of them is no such sum, or could be noticed.
    """
    loop = there.loop
    sums = [_sum(module, project, there, wait) for wait in waits]
    _look_around(module, loop, sums)
    bound = {name for target in (loop.target, *targets_in(loop)) for name in names_in_code(target)}
    if any(not bound.isdisjoint(names_in_code(device)) for device in there.moves.values()):
        raise NotProven("the device may be another one in each iteration")
    if any(not one.is_count for one in sums):
        if project.holds(r"\breduction(\s*=(?!\s*['\"](mean|sum)['\"])|['\"]\s*,)", "reduction"):
            raise NotProven("the loss may be unreduced, for which `.item()` raises in every step")
        if project.holds(rf"\b({'|'.join(_OTHER_TENSORS)})\b", *_OTHER_TENSORS):
            raise NotProven("the loss may be a `DTensor`, or another object that is no plain tensor")
        kinds = [device_value(module, device).surely(project) for device in there.moves.values()]
        if not all(kind and kind <= _EXACT for kind in kinds):
            raise NotProven("the device may lack float64 (MPS), and would round the sums differently")
    for name in dict.fromkeys(one.name for one in sums):
        _look_at(module, project, loop, name, [one for one in sums if one.name == name])
    edits: list[Edit] = []
    for one in sums:
        start, end = module.span(one.wait.node)
        value = module.source(one.wait.value).strip()
        if _is_item(one.wait.node):  # what stands before it stays as it is written
            start = module.text.rindex(".", start, module.span(one.wait.node.func)[1])
            value = ""
        elif not isinstance(one.wait.value, cst.Name | cst.Attribute | cst.Call):
            value = f"({value})"
        suffix = one.suffix.removeprefix(".detach()") if method_called(one.wait.value) == "detach" else one.suffix
        edits.append(Edit(start, end, f"{value}{suffix}"))
    return [*edits, _numbers_again(module, loop, sums)]


def _is_item(node: cst.CSTNode) -> TypeGuard[cst.Call]:
    """Whether it is ``….item()``."""
    return isinstance(node, cst.Call) and method_called(node) == "item" and not node.args


def _sum(module: Module, project: Project, there: DeviceLoop, wait: Wait) -> _Sum:
    """The sum that a wait is added to."""
    shown = one_line(module, wait.node)
    function = wait.node.func
    plain = _is_item(wait.node) and isinstance(function, cst.Attribute) and function.value is wait.value
    if not (plain or isinstance(function, cst.Name)):
        raise NotProven(f"the loop waits at `{shown}`, too")
    node: cst.CSTNode = wait.node
    parent = module.parents[node]
    factor: cst.BaseExpression | None = None
    if isinstance(parent, cst.BinaryOperation) and isinstance(parent.operator, cst.Multiply):
        factor = parent.right if parent.left is node else parent.left
        node, parent = parent, module.parents[parent]
    name = dotted(parent.target) if isinstance(parent, cst.AugAssign) else None
    if not isinstance(parent, cst.AugAssign) or not isinstance(parent.operator, cst.AddAssign):
        raise NotProven(f"`{shown}` is not only added up")
    if name is None or "." in name:
        raise NotProven(f"`{module.source(parent.target).strip()}` is no plain variable, and other code may read it")
    turned = module.qualified_names(function) if isinstance(function, cst.Name) else set()  # int(…), float(…)
    if factor is None and turned <= {"builtins.int"} and _is_count(module, wait.value):
        if project.holds(_OWN_EQUALITY, "__eq__", "__ne__", "eq", "ne"):
            refuse_own_items(project, f"`{module.source(wait.value).strip()}`")
        return _Sum(name, parent, wait, "")
    if factor is not None and not _is_size(module, project, there.loop, factor, parent):
        raise NotProven(f"`{module.source(factor).strip()}` is not surely the batch size")
    suffix = "" if turned & {"builtins.int"} else as_float64(module, project, there.loop, wait.value, parent)
    if not suffix:
        raise NotProven(f"`{shown}` does not surely come from a loss of `torch.nn` that is one number")
    return _Sum(name, parent, wait, suffix)


def _is_count(module: Module, node: cst.BaseExpression) -> bool:
    """Whether a value is the sum of a comparison: a 64-bit integer."""
    match node:
        case cst.Call(func=cst.Attribute(value=compared, attr=cst.Name(value="sum")), args=[]):
            pass
        case cst.Call(args=[cst.Arg(value=compared)]) if is_call_of(module, node, _SUM):
            pass
        case _:
            return False
    match compared:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="eq" | "ne")), args=[_]):
            return True
        case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=cst.Equal() | cst.NotEqual())]):
            return True
    return False


def _is_size(module: Module, project: Project, loop: cst.For, node: cst.BaseExpression, at: cst.CSTNode) -> bool:
    """Whether an expression is a number that tells the size of something: ``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    if not isinstance(node, cst.Integer | cst.Name) and project.holds(_OWN_SIZE, "size", "shape"):
        return isinstance(node, cst.Call) and module.qualified_names(node.func) == {"builtins.len"}
    match node:
        case cst.Integer():
            return True
        case cst.Name(value=name):
            value = value_in(module, loop, name, at)
            return value is not None and _is_size(module, project, loop, value, module.parents[value])
        case cst.Call(func=function) if module.qualified_names(function) == {"builtins.len"}:
            return True
        case cst.Call(args=[cst.Arg(value=cst.Integer())]):
            return method_called(node) == "size"
        case cst.Subscript(
            value=cst.Attribute(attr=cst.Name(value="shape")),
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer()))],
        ):
            return True
    return False


def _look_around(module: Module, loop: cst.For, sums: list[_Sum]) -> None:
    """Refuse where what is around the loop, or around a sum in it, could notice, or do otherwise than it reads."""
    function = module.enclosing_function(loop)
    if function is None and module.path.endswith(".ipynb"):
        raise NotProven("a cell that is interrupted leaves its variables to the next one")
    inside = (takewhile(lambda a: a is not function, module.ancestors(one.statement)) for one in sums)
    for ancestor in chain.from_iterable(inside):
        if isinstance(ancestor, cst.Try | cst.TryStar):
            raise NotProven("the `try` around the loop could see the sums before it is over")
        if isinstance(ancestor, cst.With) and not lets_errors_pass(module, ancestor):
            raise NotProven("the `with` around the loop could go on before it is over")
    decorators = function.decorators if function is not None else ()
    if not all(resolves_to(module, decorator.decorator, PLAIN_DECORATOR) for decorator in decorators):
        raise NotProven("a decorator may compile the loop, and round differently")
    home = function or module.tree
    if find_own(home, cst.Yield, cst.Await):
        raise NotProven("the function is a generator or coroutine, and others run in between")
    if any(module.qualified_names(call.func) & _INSPECTS for call in find_in(home, cst.Call)):
        raise NotProven("the function uses `locals()` or the like")
    for call in find_own(loop.body, cst.Call):
        if any(_CLOCKS.fullmatch(name) for name in module.qualified_names(call.func)):
            raise NotProven("its steps are timed, and would be timed before they are done")
        if any(name.endswith(".inference_mode") for name in module.qualified_names(call.func)) and (
            call.args or not isinstance(module.parents[call], cst.WithItem)
        ):
            raise NotProven("`torch.inference_mode` may not be on in every iteration")


def _look_at(module: Module, project: Project, loop: cst.For, name: str, sums: list[_Sum]) -> None:
    """Refuse where something else in the loop sees a sum, or where it does not start as a plain number."""
    found = module.scopes.lookup(name, loop)
    function = module.enclosing_function(loop)
    home = function or module.tree
    if found is None or found[0].node is not home:
        raise NotProven(f"`{name}` is global or nonlocal")
    scope = found[0]
    if function is None and project.imported_elsewhere(module, name):
        raise NotProven(f"other files may use `{name}`")
    kinds = {one.is_count for one in sums}
    blocks = {module.parents[module.parents[one.statement]] for one in sums}
    if len(kinds) > 1 or len(blocks) > 1:
        raise NotProven(f"`{name}` is added to in several ways")
    added = {one.statement for one in sums}
    is_set = False
    for use in variable_mentions(module, name, scope):
        around = next(a for a in module.ancestors(use) if isinstance(a, cst.FunctionDef | cst.Lambda | cst.Module))
        if around is not home:
            raise NotProven(f"a function inside uses `{name}`")
        parent = module.parents[use]
        if holds(module, loop, use):
            if parent not in added:
                raise NotProven(f"`{name}` is used before the loop is over")
            continue
        value = _value_for(module, use)
        if value is not None:
            if not (is_integer(value, "0") if kinds == {True} else isinstance(value, cst.Float)):
                raise NotProven(f"`{name}` does not start as a literal number of that type")
            is_set = is_set or has_run(module, home, use, loop)
        elif isinstance(parent, cst.AugAssign) and parent.target is use:
            if not _adds_the_same(module, project, parent, kinds == {True}):
                raise NotProven(f"`{name}` is changed elsewhere, too")
        elif mention(module, use) is not Mention.READ:
            raise NotProven(f"`{name}` is changed elsewhere, too")
    if not is_set:
        raise NotProven(f"`{name}` may have no value after a loop without a batch")


def _value_for(module: Module, name: cst.Name) -> cst.BaseExpression | None:
    """What an assignment gives to a name, pairwise for ``a, b = x, y``; ``None`` when the name is no target of one."""
    holder: cst.CSTNode = module.parents[name]
    while isinstance(holder, cst.Element | cst.Tuple | cst.List):
        holder = module.parents[holder]
    match holder, module.parents[holder]:
        case cst.AssignTarget(target=target), cst.Assign(value=value):
            return next((given for part, given in assigned_pairs(target, value) if part is name), value)
        case cst.AnnAssign(target=target, value=value), _ if target is name:
            return value
    return None


def _adds_the_same(module: Module, project: Project, statement: cst.AugAssign, count: bool) -> bool:
    """Whether another loop adds to the sum what leaves it the kind of number that it is."""
    item, factor = statement.value, None
    if isinstance(item, cst.BinaryOperation) and isinstance(item.operator, cst.Multiply):
        item, factor = (item.left, item.right) if _is_item(item.left) else (item.right, item.left)
    if not isinstance(statement.operator, cst.AddAssign) or not _is_item(item):
        return False
    if count:
        return factor is None and isinstance(item.func, cst.Attribute) and _is_count(module, item.func.value)
    loop = next((ancestor for ancestor in module.ancestors(statement) if isinstance(ancestor, cst.For)), None)
    return factor is None or (loop is not None and _is_size(module, project, loop, factor, statement))


def _numbers_again(module: Module, loop: cst.For, sums: list[_Sum]) -> Edit:
    """Behind the loop, its sums become numbers: the one place that waits."""
    end = module.line_end(module.span(loop)[1] - 1)
    indent = module.indentation(module.span(loop)[0])
    kinds = {one.name: "int" if one.is_count else "float" for one in sums}
    text = module.newline.join(f"{indent}{name} = {kind}({name})" for name, kind in kinds.items())
    ended = module.text[:end].endswith(("\n", "\r"))
    return Edit(end, end, f"{text}{module.newline}" if ended else f"{module.newline}{text}")
