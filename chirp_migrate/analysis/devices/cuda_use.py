"""Where code puts things on a CUDA device, and so initialises CUDA in its process."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import assigned_value
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.queries import own_nodes, parameters

#: Functions of ``torch.cuda`` that initialise CUDA when they are called.
_INITIALISING = re.compile(
    r"torch\.cuda\.((memory|random|streams)\.)?(init|set_device|current_device|synchronize|mem_get_info|get_rng_state"
    r"|get_device_(name|properties|capability)|current_stream|default_stream|current_blas_handle|Event|Stream"
    r"|reset_(max|peak)_memory_\w+)"
)
_DEPTH = 4


def moves_to_cuda(module: Module, call: cst.Call) -> bool:
    """Whether a call puts something on a CUDA device: ``x.cuda()``, ``x.to("cuda")``, ``device="cuda"``."""
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if method == "cuda":
        return True
    device = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "device"), None)
    if method == "to":
        first = call.args[0] if call.args and call.args[0].keyword is None and not call.args[0].star else None
        device = first.value if device is None and first is not None else device
        return device is not None and names_cuda(module, device)
    if device is None or not names_cuda(module, device):
        return False
    return any(one.startswith("torch.") and one != "torch.device" for one in module.qualified_names(call.func))


def cuda_use(module: Module, call: cst.Call) -> bool:
    """Whether a call initialises CUDA: it moves something there, or asks something that only CUDA knows."""
    if moves_to_cuda(module, call):
        return True
    return any(_INITIALISING.fullmatch(one) for one in module.qualified_names(call.func))


def cuda_uses(module: Module, scope: cst.CSTNode, *, nested: bool = False) -> Iterator[cst.Call]:
    """Calls in ``scope`` that use CUDA; those in functions and classes inside it only with ``nested``."""
    for node in walk(scope) if nested else own_nodes(scope):
        if isinstance(node, cst.Call) and cuda_use(module, node):
            yield node


def names_cuda(module: Module, device: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression names a CUDA device, where there is one: also ``"cuda" if … else "cpu"``."""
    if depth > _DEPTH:
        return False
    if isinstance(device, cst.SimpleString | cst.ConcatenatedString | cst.FormattedString):
        return re.match(r"[rfbuRFBU]*[\"']+cuda\b", module.source(device)) is not None
    parts: list[cst.BaseExpression] = []
    if isinstance(device, cst.IfExp):
        parts = [device.body, device.orelse]
    elif isinstance(device, cst.Call) and "torch.device" in module.qualified_names(device.func):
        parts = [a.value for a in device.args[:1]]
    elif isinstance(device, cst.Name):
        parts = _values_of_name(module, device)
    elif isinstance(device, cst.Attribute) and isinstance(device.value, cst.Name) and device.value.value == "self":
        parts = _values_of_attribute(module, device)
    return any(names_cuda(module, part, depth + 1) for part in parts)


def _values_of_name(module: Module, name: cst.Name) -> list[cst.BaseExpression]:
    """Values that a name is given in the nearest scope that binds it; for a parameter its default."""
    for scope in (*(a for a in module.ancestors(name) if isinstance(a, cst.FunctionDef)), module.tree):
        values = [
            value
            for node in own_nodes(scope)
            if isinstance(node, cst.Name)
            and node.value == name.value
            and (value := assigned_value(module, node)) is not None
        ]
        parameter = parameters(scope).get(name.value)
        if parameter is not None and parameter.default is not None:
            values.append(parameter.default)
        if values or parameter is not None:
            return values
    return []


def _values_of_attribute(module: Module, attribute: cst.Attribute) -> list[cst.BaseExpression]:
    owner = module.enclosing_class(attribute)
    return [
        value
        for node in (walk(owner) if owner is not None else ())
        if isinstance(node, cst.Attribute)
        and node.deep_equals(attribute)
        and (value := assigned_value(module, node)) is not None
    ]
