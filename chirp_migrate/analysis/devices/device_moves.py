"""Which calls move a tensor to a device, and what is known of that device."""

from __future__ import annotations

import re

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.origins import backend_holds, origins, scope_of
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted

__all__ = ["CUDA", "device_types", "is_dtype", "may_be_device", "may_move", "moved_to", "names_device"]

#: What ``.cuda()`` without an argument moves to.
CUDA = cst.SimpleString('"cuda"')

_NAME = re.compile(r"_*(\w+_)?(?<!cpu_)(?<!host_)(device|dev|gpu|cuda|rank)(_?ids?)?(_?\d+)?", re.IGNORECASE)
_DTYPE = re.compile(r"torch\.(b?float|double|half|u?int|long|short|bool|complex|cfloat|cdouble)\w*")
_ACCELERATOR = re.compile(r"(cuda|xpu|mps|hpu|npu|mtia|xla)\b")
_MOVE = re.compile(r"\.\s*(to|cuda)\s*\(|\bdevice\s*\)")
_DEPTH = 4


def may_move(text: str) -> bool:
    """Whether a module may move something to a device, judged by words."""
    return _MOVE.search(text) is not None


def moved_to(module: Module, call: cst.Call) -> cst.BaseExpression | None:
    """The device that ``x.to(…)`` or ``x.cuda(…)`` moves to; ``None`` for any other call, and for the CPU.

    A name is a device when it is given one, or by what people call devices.
    """
    if not isinstance(call.func, cst.Attribute) or any(one.star for one in call.args):
        return None
    given = {one.keyword.value: one.value for one in call.args if one.keyword is not None}
    positional = [one.value for one in call.args if one.keyword is None]
    device = positional[0] if positional else given.get("device")
    if call.func.attr.value == "cuda":
        return CUDA if device is None else device
    if call.func.attr.value != "to" or device is None or is_dtype(module, device):
        return None
    return device if may_be_device(module, device) else None


def is_dtype(module: Module, node: cst.BaseExpression) -> bool:
    """Whether an expression is one of PyTorch's data types, as ``torch.float32``."""
    names = module.qualified_names(node)
    return bool(names) and all(_DTYPE.fullmatch(name) for name in names)


def device_types(module: Module, project: Project, node: cst.BaseExpression, depth: int = 0) -> frozenset[str]:
    """The kinds of device (``cuda``, ``cpu`` …) that an expression can be; empty when that cannot be seen."""
    if depth > _DEPTH:
        return frozenset()
    if isinstance(node, cst.SimpleString):
        return frozenset({str(node.evaluated_value).partition(":")[0]})
    if isinstance(node, cst.FormattedString) and ":" in _first_text(node):  # f"cuda:{rank}"
        return frozenset({_first_text(node).partition(":")[0]})
    if isinstance(node, cst.IfExp):
        return _every(*(device_types(module, project, one, depth) for one in (node.body, node.orelse)))
    if isinstance(node, cst.Call) and module.qualified_names(node.func) == {"torch.device"} and node.args:
        return device_types(module, project, node.args[0].value, depth)
    name = dotted(node)
    if name is None or name.count(".") > name.startswith("self."):
        return frozenset()
    scope = scope_of(module, node, name)
    if isinstance(node, cst.Attribute) and _is_set_elsewhere(project, node.attr.value):
        return frozenset()
    found = origins(module, scope, name)[0]
    if isinstance(node, cst.Name):
        owner = module.scopes.lookup(name, node)
        if owner is None or len(owner[1]) != len(found):
            return frozenset()  # a caller, a loop, an import or a pattern gives it values, too
    known = (device_types(module, project, one.value, depth + 1) for one in found if one.part is None)
    return _every(*known, *(frozenset[str]() for one in found if one.part is not None))


def _first_text(node: cst.FormattedString) -> str:
    first = node.parts[0] if node.parts else None
    return first.value if isinstance(first, cst.FormattedStringText) else ""


def _every(*kinds: frozenset[str]) -> frozenset[str]:
    """All of them together, where each is known."""
    return frozenset().union(*kinds) if kinds and all(kinds) else frozenset()


def _is_set_elsewhere(project: Project, attribute: str) -> bool:
    return backend_holds(project, rf"(?<!\bself)\.{re.escape(attribute)}\s*=(?!=)")


def names_device(module: Module, node: cst.BaseExpression) -> bool:
    """Whether a name or attribute stands for a device, and not surely for the CPU."""
    return dotted(node) is not None and may_be_device(module, node)


def may_be_device(
    module: Module, node: cst.BaseExpression, kinds: re.Pattern[str] = _ACCELERATOR, depth: int = 0
) -> bool:
    """Whether an expression is a device, and not surely one of another kind than ``kinds``, such as the CPU."""
    if isinstance(node, cst.SimpleString):
        return kinds.match(str(node.evaluated_value)) is not None
    if isinstance(node, cst.FormattedString):
        return kinds.match(_first_text(node)) is not None
    if isinstance(node, cst.IfExp):
        return any(may_be_device(module, one, kinds, depth) for one in (node.body, node.orelse))
    if isinstance(node, cst.Call):
        made = module.qualified_names(node.func) == {"torch.device"}
        return made and bool(node.args) and may_be_device(module, node.args[0].value, kinds, depth)
    if isinstance(node, cst.Subscript):
        return may_be_device(module, node.value, kinds, depth)
    if not isinstance(node, cst.Name | cst.Attribute):
        return isinstance(node, cst.Integer)
    name = dotted(node)
    if name is None:
        return m.matches(node, m.Attribute(attr=m.Name("device")))
    values = [one.value for one in origins(module, scope_of(module, node, name), name)[0] if one.part is None]
    if values and depth < _DEPTH and all(_is_literal(module, one) for one in values):
        return any(may_be_device(module, one, kinds, depth + 1) for one in values)
    return _NAME.fullmatch(name.rpartition(".")[2]) is not None


def _is_literal(module: Module, value: cst.BaseExpression) -> bool:
    """Whether a value is a device that is spelled out: a string, or ``torch.device`` of one."""
    if isinstance(value, cst.IfExp):
        return _is_literal(module, value.body) and _is_literal(module, value.orelse)
    if isinstance(value, cst.Call) and module.qualified_names(value.func) == {"torch.device"} and value.args:
        return _is_literal(module, value.args[0].value)
    return isinstance(value, cst.SimpleString | cst.FormattedString)
