"""Possible devices of an expression: as written, or by its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import origins, scope_of
from chirp_migrate.analysis.dataflow.uses_elsewhere import set_from_outside
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, parameters

#: Kinds of devices that are not the CPU.
ACCELERATOR = re.compile(r"(cuda|xpu|mps|hpu|npu|mtia|xla)\b")
#: What people call devices.
_NAME = re.compile(r"(\w*_)?(?<!cpu_)(?<!host_)(device|dev|gpu|cuda|rank)(_?ids?)?(_?\d+)?", re.IGNORECASE)
_DEPTH = 4


@dataclass(frozen=True)
class DeviceValue:
    """A device, as far as it is known.

    Attributes:
        kinds: what it is written as anywhere: ``cuda``, ``cpu`` …, numbers of devices left out.
        spelled: the kinds of those of its possible values that are written out in full.
        is_called: whether one of the others is called a device, or is the number of one.
        is_complete: whether it can be nothing but one of ``kinds``.
        attributes: names of the attributes that this depends on.
    """

    kinds: frozenset[str] = frozenset()
    spelled: frozenset[str] = frozenset()
    is_called: bool = False
    is_complete: bool = False
    attributes: frozenset[str] = frozenset()

    def __or__(self, other: DeviceValue) -> DeviceValue:
        return DeviceValue(
            self.kinds | other.kinds,
            self.spelled | other.spelled,
            self.is_called or other.is_called,
            self.is_complete and other.is_complete,
            self.attributes | other.attributes,
        )

    def may_be(self, kinds: re.Pattern[str] = ACCELERATOR) -> bool:
        """Return whether it is a device, and not provably one of another kind than ``kinds``, such as the CPU."""
        return self.is_called or any(kinds.match(one) for one in self.spelled)

    def provably(self, project: Project) -> frozenset[str]:
        """Return the kinds of device that it can be; empty when that cannot be seen."""
        given = (project.holds(set_from_outside(attribute), attribute) for attribute in self.attributes)
        return self.kinds if self.is_complete and not any(given) else frozenset()


_UNKNOWN = DeviceValue()
_NUMBER = DeviceValue(is_called=True)


def device_value(module: Module, node: cst.BaseExpression, depth: int = 0) -> DeviceValue:
    """Return the device that an expression refers to."""
    match node:
        case cst.SimpleString():
            return _device_of_text(str(node.evaluated_value), is_whole=True)
        case cst.FormattedString(parts=[cst.FormattedStringText(value=text), *_]):
            return _device_of_text(text, is_whole=":" in text)  # f"cuda:{rank}"
        case cst.IfExp(body=body, orelse=orelse):
            return device_value(module, body, depth) | device_value(module, orelse, depth)
        case cst.Call(args=[first, *_]) if module.qualified_names(node.func) == {"torch.device"}:
            return device_value(module, first.value, depth)
        case cst.Subscript(value=value):
            return DeviceValue(is_called=device_value(module, value, depth).may_be())
        case cst.Integer():
            return _NUMBER
        case cst.Name() | cst.Attribute():
            return _named(module, node, depth)
    return _UNKNOWN


def _device_of_text(text: str, *, is_whole: bool) -> DeviceValue:
    kind = frozenset({text.partition(":")[0]})
    return DeviceValue(kind, kind, is_complete=is_whole)


def _named(module: Module, node: cst.Name | cst.Attribute, depth: int) -> DeviceValue:
    name = dotted(node)
    if name is None:
        return DeviceValue(is_called=isinstance(node, cst.Attribute) and node.attr.value == "device")
    scope = scope_of(module, node, name)
    given = origins(module, scope, name)[0]
    values = [one.value for one in given if one.part is None]
    found = [device_value(module, value, depth + 1) for value in values] if depth < _DEPTH else []
    is_complete = bool(found) and len(found) == len(given) and name.count(".") <= name.startswith("self.")
    if isinstance(node, cst.Name):
        owner = module.scopes.lookup(name, node)
        # Else a caller, a loop, an import or a pattern gives it values, too.
        is_complete = is_complete and owner is not None and len(owner[1]) == len(given)
    whole = reduce(or_, found, DeviceValue(is_complete=is_complete))
    if isinstance(node, cst.Attribute):
        whole = replace(whole, attributes=whole.attributes | {node.attr.value})
    if not found or not all(_is_literal(module, value) for value in values):
        last = name.rpartition(".")[2]
        whole = replace(whole, spelled=frozenset(), is_called=_NAME.fullmatch(last) is not None)
    parameter = parameters(scope).get(name)
    if parameter is not None and parameter.default is not None and depth < _DEPTH:
        whole = replace(whole, kinds=whole.kinds | device_value(module, parameter.default, depth + 1).kinds)
    return whole


def _is_literal(module: Module, value: cst.BaseExpression) -> bool:
    """Return whether a value is a device that is spelled out: a string, or ``torch.device`` of one."""
    match value:
        case cst.IfExp(body=body, orelse=orelse):
            return _is_literal(module, body) and _is_literal(module, orelse)
        case cst.Call(args=[first, *_]) if module.qualified_names(value.func) == {"torch.device"}:
            return _is_literal(module, first.value)
    return isinstance(value, cst.SimpleString | cst.FormattedString)
