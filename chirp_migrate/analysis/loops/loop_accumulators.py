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

from chirp_migrate.analysis.dataflow.closures import is_variable
from chirp_migrate.analysis.dataflow.origins import backend_holds, origins, scope_of
from chirp_migrate.analysis.datasets.dataset_state import assigned_value
from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.loops.sync_points import DeviceLoop, Wait
from chirp_migrate.analysis.qualified_names import PLAIN_DECORATOR, is_call_of, resolves_to
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    Mention,
    dotted,
    find_own,
    holds,
    is_name,
    mention,
    method_called,
    names_below,
    own_nodes,
)

_LOSS = re.compile(r"torch\.nn\.(modules\.loss\.)?\w+Loss")
_LOSS_FUNCTION = re.compile(r"torch\.nn\.functional\.(\w*loss|\w*cross_entropy\w*|kl_div)")
#: Context managers that let exceptions pass, and leave the device's stream as it is.
_TRANSPARENT = re.compile(r"torch\.(?!cuda\.[sS]tream).+|tqdm\..+|builtins\.open")
_CLOCKS = re.compile(r"(time|timeit|datetime)\..+|torch\.cuda\.Event")
_INSPECTS = frozenset({"builtins.locals", "builtins.vars", "builtins.eval", "builtins.exec"})
_SAME = frozenset({"detach", "mean", "sum"})
_EXACT = frozenset({"cpu", "cuda"})
_DTENSORS = ("DTensor", "distribute_tensor", "loss_parallel")


class NotProven(Exception):
    """The sums are not surely the same; the message says why, as half a sentence."""


@dataclass(frozen=True)
class _Sum:
    """One ``name += …item()``."""

    name: str
    statement: cst.AugAssign
    wait: Wait
    is_count: bool


def summed_on_device(module: Module, project: Project, there: DeviceLoop, waits: list[Wait]) -> list[Edit]:
    """Edits after which the sums of a loop stay on the device until it is over.

    Args:
        there: the loop.
        waits: all that waits for the device in it, in every step.

    Raises:
        NotProven: where one of them is no such sum, or could be noticed.
    """
    loop = there.loop
    sums = [_sum(module, there, wait) for wait in waits]
    _look_around(module, loop, sums)
    if any(not one.is_count for one in sums):
        if backend_holds(project, r"\breduction\s*=(?!\s*['\"](mean|sum)['\"])", "reduction"):
            raise NotProven("the loss may be unreduced, for which `.item()` raises in every step")
        if backend_holds(project, rf"\b({'|'.join(_DTENSORS)})\b", *_DTENSORS):
            raise NotProven("the loss may be a `DTensor`")
        kinds = [device_value(module, device).surely(project) for device in there.moves.values()]
        if not all(one and one <= _EXACT for one in kinds):
            raise NotProven("the device may lack float64 (MPS), and would round the sums differently")
    for name in dict.fromkeys(one.name for one in sums):
        _look_at(module, loop, name, [one for one in sums if one.name == name])
    edits: list[Edit] = []
    for one in sums:
        start, end = module.span(one.wait.node)
        value = module.source(one.wait.value).strip()
        if _is_item(one.wait.node):  # what stands before it stays as it is written
            start = module.text.rindex(".", start, module.span(one.wait.node.func)[1])
            value = ""
        elif not isinstance(one.wait.value, cst.Name | cst.Attribute | cst.Call):
            value = f"({value})"
        detached = method_called(one.wait.value) == "detach"
        suffix = "" if one.is_count else ".double()" if detached else ".detach().double()"
        edits.append(Edit(start, end, f"{value}{suffix}"))
    return [*edits, _numbers_again(module, loop, sums)]


def _is_item(node: cst.CSTNode) -> TypeGuard[cst.Call]:
    """Whether it is ``….item()``."""
    return isinstance(node, cst.Call) and method_called(node) == "item" and not node.args


def _is_double(node: cst.CSTNode) -> bool:
    """Whether it is ``….detach().double()``."""
    match node:
        case cst.Call(func=cst.Attribute(value=cst.Call(args=[]) as detached), args=[]):
            return method_called(node) == "double" and method_called(detached) == "detach"
    return False


def _sum(module: Module, there: DeviceLoop, wait: Wait) -> _Sum:
    """The sum that a wait is added to."""
    shown = " ".join(module.source(wait.node).split())
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
        return _Sum(name, parent, wait, True)
    if factor is not None and not _is_size(module, there, factor):
        raise NotProven(f"`{module.source(factor).strip()}` is not surely the batch size")
    if turned & {"builtins.int"} or not _is_loss(module, there.loop, wait.value):
        raise NotProven(f"`{shown}` does not surely come from a loss of `torch.nn`")
    return _Sum(name, parent, wait, False)


def _is_count(module: Module, node: cst.BaseExpression) -> bool:
    """Whether a value is the sum of a comparison: a 64-bit integer."""
    if not isinstance(node, cst.Call):
        return False
    match node:
        case cst.Call(func=cst.Attribute(value=compared, attr=cst.Name(value="sum")), args=[]):
            pass
        case cst.Call(func=function, args=[one]) if module.qualified_names(function) == {"torch.sum"}:
            compared = one.value
        case _:
            return False
    match compared:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="eq" | "ne")), args=[_]):
            return True
        case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=cst.Equal() | cst.NotEqual())]):
            return True
    return False


def _is_size(module: Module, there: DeviceLoop, node: cst.BaseExpression) -> bool:
    """Whether an expression is a number that tells the size of something: ``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    match node:
        case cst.Integer():
            return True
        case cst.Name(value=name):
            values = _values_in(module, there.loop, name)
            return len(values) == 1 and not isinstance(values[0], cst.Name) and _is_size(module, there, values[0])
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


def _is_loss(module: Module, loop: cst.For, node: cst.BaseExpression) -> bool:
    """Whether a value is surely a floating-point tensor: it is gone back from, or a loss of PyTorch's makes it."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME:
        node = node.func.value
    if isinstance(node, cst.Name):
        values = _values_in(module, loop, node.value)
        if len(values) != 1:
            return False
        backward = any(_goes_backward(one, node.value) for one in walk(loop.body))
        return backward or _is_loss(module, loop, values[0])
    if not isinstance(node, cst.Call):
        return False
    if resolves_to(module, node.func, _LOSS_FUNCTION):
        return True
    name = dotted(node.func)
    made = origins(module, scope_of(module, node.func, name), name)[0] if name is not None else []
    return bool(made) and all(
        isinstance(one.value, cst.Call)
        and one.part is None
        and any(_LOSS.fullmatch(n) for n in module.qualified_names(one.value.func))
        for one in made
    )


def _goes_backward(node: cst.CSTNode, loss: str) -> bool:
    """Whether it is ``loss.backward()``, perhaps scaled: the gradient of one number."""
    match node:
        case cst.Call(func=cst.Attribute(value=whence, attr=cst.Name(value="backward")), args=given):
            match whence:
                case cst.Call(args=[cst.Arg(value=scaled)]) if method_called(whence) == "scale":
                    whence = scaled
            plain = all(is_name(one.keyword, "retain_graph", "create_graph") for one in given)
            return plain and is_name(whence, loss)
    return False


def _values_in(module: Module, loop: cst.For, name: str) -> list[cst.BaseExpression]:
    """Values that the body of a loop gives to a name; what is no plain assignment counts, as the name itself."""
    values: list[cst.BaseExpression] = []
    for node in own_nodes(loop.body):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if is_name(target.target, name):
                    values.append(node.value)
                elif names_below(target.target, name) and isinstance(target.target, cst.Tuple | cst.List):
                    values += [cst.Name(name), cst.Name(name)]
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr | cst.For | cst.AsName):
            target_node = node.name if isinstance(node, cst.AsName) else node.target
            if names_below(target_node, name):
                values += [cst.Name(name), cst.Name(name)]
    return values


def _look_around(module: Module, loop: cst.For, sums: list[_Sum]) -> None:
    """Refuse where what is around the loop, or around a sum in it, could notice, or do otherwise than it reads."""
    function = module.enclosing_function(loop)
    if function is None and module.path.endswith(".ipynb"):
        raise NotProven("a cell that is interrupted leaves its variables to the next one")
    inside = (takewhile(lambda a: a is not function, module.ancestors(one.statement)) for one in sums)
    for ancestor in chain.from_iterable(inside):
        if isinstance(ancestor, cst.Try | cst.TryStar):
            raise NotProven("the `try` around the loop could see the sums before it is over")
        items = ancestor.items if isinstance(ancestor, cst.With) else ()
        if not all(is_call_of(module, one.item, _TRANSPARENT) for one in items):
            raise NotProven("the `with` around the loop could go on before it is over")
    decorators = function.decorators if function is not None else ()
    if not all(resolves_to(module, one.decorator, PLAIN_DECORATOR) for one in decorators):
        raise NotProven("a decorator may compile the loop, and round differently")
    for node in own_nodes(function if function is not None else module.tree):
        if isinstance(node, cst.Yield | cst.Await):
            raise NotProven("the function is a generator or coroutine, and others run in between")
        if isinstance(node, cst.Call) and module.qualified_names(node.func) & _INSPECTS:
            raise NotProven("the function uses `locals()` or the like")
    for call in find_own(loop.body, cst.Call):
        if any(_CLOCKS.fullmatch(one) for one in module.qualified_names(call.func)):
            raise NotProven("its steps are timed, and would be timed before they are done")


def _look_at(module: Module, loop: cst.For, name: str, sums: list[_Sum]) -> None:
    """Refuse where something else in the loop sees a sum, or where it does not start as a plain number."""
    found = module.scopes.lookup(name, loop)
    function = module.enclosing_function(loop)
    home = function if function is not None else module.tree
    if found is None or found[0].node is not home:
        raise NotProven(f"`{name}` is global or nonlocal")
    scope = found[0]
    kinds = {one.is_count for one in sums}
    blocks = {module.parents[module.parents[one.statement]] for one in sums}
    if len(kinds) > 1 or len(blocks) > 1:
        raise NotProven(f"`{name}` is added to in several ways")
    added = {one.statement for one in sums}
    for use in (one for one in module.named(name) if is_variable(module, one)):
        owner = module.scopes.lookup(name, use)
        if owner is None or owner[0] is not scope:
            continue
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
            if not isinstance(value, cst.Integer if kinds == {True} else cst.Float):
                raise NotProven(f"`{name}` does not start as a literal number of that type")
        elif isinstance(parent, cst.AugAssign) and parent.target is use:
            if not _adds_the_same(module, parent, kinds == {True}):
                raise NotProven(f"`{name}` is changed elsewhere, too")
        elif mention(module, use) is not Mention.READ:
            raise NotProven(f"`{name}` is changed elsewhere, too")


def _value_for(module: Module, mention: cst.Name) -> cst.BaseExpression | None:
    """What an assignment gives to a name, pairwise for ``a, b = x, y``; ``None`` when the name is no target of one."""
    if (given := assigned_value(module, mention)) is not None:
        return given
    parent = module.parents[mention]
    around = module.parents[parent] if isinstance(parent, cst.Element) else None
    holder = module.parents[around] if isinstance(around, cst.Tuple | cst.List) else None
    if not isinstance(holder, cst.AssignTarget) or not isinstance(around, cst.Tuple | cst.List):
        return None
    statement = module.parents[holder]
    value = statement.value if isinstance(statement, cst.Assign) else None
    if not isinstance(value, cst.Tuple | cst.List) or len(value.elements) != len(around.elements):
        return value
    return next(one.value for one, target in zip(value.elements, around.elements, strict=True) if target is parent)


def _adds_the_same(module: Module, statement: cst.AugAssign, count: bool) -> bool:
    """Whether another loop adds to the sum what leaves it the kind of number that it is."""
    value = statement.value
    multiplied = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply)
    sides = [value.left, value.right] if multiplied else [value]  # type: ignore[attr-defined]
    if not isinstance(statement.operator, cst.AddAssign) or (count and len(sides) > 1):
        return False
    if not count:
        return any(_is_item(one) or _is_double(one) for one in sides)
    if _is_item(value) and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return _is_count(module, value)


def _numbers_again(module: Module, loop: cst.For, sums: list[_Sum]) -> Edit:
    """Behind the loop, its sums become numbers: the one place that waits."""
    end = module.line_end(module.span(loop)[1] - 1)
    indent = module.indentation(module.span(loop)[0])
    lines = []
    for name in dict.fromkeys(one.name for one in sums):
        is_count = next(one.is_count for one in sums if one.name == name)
        lines.append(f"{indent}{name} = {'int' if is_count else 'float'}({name})")
    ended = module.text[:end].endswith(("\n", "\r"))
    text = module.newline.join(lines)
    return Edit(end, end, f"{text}{module.newline}" if ended else f"{module.newline}{text}")
