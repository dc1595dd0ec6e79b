"""Infer the possible devices of an expression from literals, or from the name of a variable."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values_and_annotations, assigning_scope
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import dotted_source, function_parameters

#: Device types other than the CPU.
ACCELERATOR = re.compile(r"(cuda|xpu|mps|hpu|npu|mtia|xla)\b")
#: Names that are typical of devices.
_NAME = re.compile(r"(\w*_)?(?<!cpu_)(?<!host_)(device|dev|gpu|cuda|rank)(_?ids?)?(_?\d+)?", re.IGNORECASE)
_DEPTH = 4


@dataclass(frozen=True)
class DeviceValue:
    """The possible values of an expression that may be a device.

    Attributes:
        kinds: the device types of all possible values that are known, such as ``cuda`` and ``cpu``, without device
            numbers.
        spelled: the device types of the possible values that are literals. For a variable, the set is empty unless the
            code assigns only literals.
        is_called: whether a possible value is a device number, or a variable with a name that is typical of devices.
    """

    kinds: frozenset[str] = frozenset()
    spelled: frozenset[str] = frozenset()
    is_called: bool = False

    def __or__(self, other: DeviceValue) -> DeviceValue:
        return DeviceValue(self.kinds | other.kinds, self.spelled | other.spelled, self.is_called or other.is_called)

    def may_be(self, kinds: re.Pattern[str] = ACCELERATOR) -> bool:
        """Return whether the value may be a device of one of the types ``kinds``.

        The result is True for a device number. The result is also True for a variable whose name is typical of devices,
        unless the code assigns only literals to the variable. Otherwise, the result is True only if a literal in
        ``spelled`` has one of the types.
        """
        return self.is_called or any(kinds.match(one) for one in self.spelled)


_UNKNOWN = DeviceValue()
_NUMBER = DeviceValue(is_called=True)


def device_value(module: Module, node: cst.BaseExpression, depth: int = 0) -> DeviceValue:
    """Return the devices that an expression may refer to."""
    match node:
        case cst.SimpleString():
            return _device_of_text(str(node.evaluated_value))
        case cst.FormattedString(parts=[cst.FormattedStringText(value=text), *_]):
            return _device_of_text(text)  # f"cuda:{rank}"
        case cst.IfExp(body=body, orelse=orelse):
            return device_value(module, body, depth) | device_value(module, orelse, depth)
        case cst.Call(args=[first, *_]) if module.qualified_names(node.func) == {"torch.device"}:
            return device_value(module, first.value, depth)
        case cst.Subscript(value=value):
            return DeviceValue(is_called=device_value(module, value, depth).may_be())
        case cst.Integer():
            return _NUMBER
        case cst.Name() | cst.Attribute():
            return _device_by_name(module, node, depth)
    return _UNKNOWN


def _device_of_text(text: str) -> DeviceValue:
    kind = frozenset({text.partition(":")[0]})
    return DeviceValue(kind, kind)


def _device_by_name(module: Module, node: cst.Name | cst.Attribute, depth: int) -> DeviceValue:
    name = dotted_source(node)
    if name is None:
        return DeviceValue(is_called=isinstance(node, cst.Attribute) and node.attr.value == "device")
    scope = assigning_scope(module, node, name)
    values = [one.value for one in assigned_values_and_annotations(module, scope, name)[0] if one.part is None]
    found = [device_value(module, value, depth + 1) for value in values] if depth < _DEPTH else []
    whole = reduce(or_, found, _UNKNOWN)
    if not found or not all(_is_literal(module, value) for value in values):
        last = name.rpartition(".")[2]
        whole = replace(whole, spelled=frozenset(), is_called=_NAME.fullmatch(last) is not None)
    parameter = function_parameters(scope).get(name)
    if parameter is not None and parameter.default is not None and depth < _DEPTH:
        whole = replace(whole, kinds=whole.kinds | device_value(module, parameter.default, depth + 1).kinds)
    return whole


def _is_literal(module: Module, value: cst.BaseExpression) -> bool:
    """Return whether a value is a literal device: a string, or ``torch.device`` of a string."""
    match value:
        case cst.IfExp(body=body, orelse=orelse):
            return _is_literal(module, body) and _is_literal(module, orelse)
        case cst.Call(args=[first, *_]) if module.qualified_names(value.func) == {"torch.device"}:
            return _is_literal(module, first.value)
    return isinstance(value, cst.SimpleString | cst.FormattedString)
