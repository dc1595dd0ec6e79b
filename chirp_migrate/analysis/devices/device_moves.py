"""Which calls move a tensor to a device."""

from __future__ import annotations

import re
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.qualified_names import resolves_to
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import dotted, keywords, method_called

#: What ``.cuda()`` without an argument moves to.
CUDA = cst.SimpleString('"cuda"')

_DTYPE = re.compile(r"torch\.(b?float|double|half|u?int|long|short|bool|complex|cfloat|cdouble)\w*")
_MOVE = re.compile(r"\.\s*(to|cuda)\s*\(|\bdevice\s*\)")


@lru_cache(maxsize=8)
def may_move(text: str) -> bool:
    """Whether a module may move something to a device, judged by words."""
    return _MOVE.search(text) is not None


def moved_to(module: Module, call: cst.Call) -> cst.BaseExpression | None:
    """The device that ``x.to(…)`` or ``x.cuda(…)`` moves to; ``None`` for any other call, and for the CPU.

    A name is a device when it is given one, or by what people call devices.
    """
    method = method_called(call)
    if method not in ("to", "cuda") or any(one.star for one in call.args):
        return None
    given = keywords(call)
    positional = [one.value for one in call.args if one.keyword is None]
    device = positional[0] if positional else given.get("device")
    if method == "cuda":
        return CUDA if device is None else device
    if device is None or is_dtype(module, device):
        return None
    return device if device_value(module, device).may_be() else None


def is_dtype(module: Module, node: cst.BaseExpression) -> bool:
    """Whether an expression is one of PyTorch's data types, as ``torch.float32``."""
    return resolves_to(module, node, _DTYPE)


def names_device(module: Module, node: cst.BaseExpression) -> bool:
    """Whether a name or attribute stands for a device, and not surely for the CPU."""
    return dotted(node) is not None and device_value(module, node).may_be()
