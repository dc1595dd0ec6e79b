"""Find calls that move an object to a device, and other calls that initialise CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.syntax.gap_patterns import CALL, GAP
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.queries import call_argument, called_method_name, dotted_source, nodes_in_scope

#: The device of ``.cuda()`` without an argument.
CUDA = cst.SimpleString('"cuda"')

_DTYPE = re.compile(r"torch\.(b?float|double|half|u?int|long|short|bool|complex|cfloat|cdouble)\w*")
#: Functions of ``torch.cuda`` that initialise CUDA when they are called.
_INITIALISING = re.compile(
    r"torch\.cuda\.((memory|random|streams)\.)?(init|set_device|current_device|synchronize|mem_get_info|get_rng_state"
    r"|get_device_(name|properties|capability)|current_stream|default_stream|current_blas_handle|Event|Stream"
    r"|reset_(max|peak)_memory_\w+)"
)
_MOVE = re.compile(rf"\.{GAP}(to|cuda){CALL}|\bdevice\s*\)")


@lru_cache(maxsize=8)
def may_move_to_device(text: str) -> bool:
    """Return whether the text of a module contains code that may move an object to a device, such as ``.to(``."""
    return _MOVE.search(text) is not None


def target_device(module: Module, call: cst.Call) -> cst.BaseExpression | None:
    """Return the device of ``x.to(…)`` or ``x.cuda(…)``; ``None`` for any other call, and for the CPU.

    If code assigns only literals such as ``"cpu"`` to a variable, the variable counts as a device only if a literal
    names a device other than the CPU. Any other variable counts as a device if its name is typical of devices.
    """
    method = called_method_name(call)
    if method not in ("to", "cuda") or any(one.star for one in call.args):
        return None
    device = call_argument(call, 0, "device")
    if method == "cuda":
        return CUDA if device is None else device
    if device is None or is_dtype(module, device):
        return None
    return device if device_value(module, device).may_be() else None


def is_dtype(module: Module, node: cst.BaseExpression) -> bool:
    """Return whether an expression is one of PyTorch's data types, such as ``torch.float32``."""
    return resolves_to(module, node, _DTYPE)


def may_name_device(module: Module, node: cst.BaseExpression) -> bool:
    """Return whether a name or attribute may refer to a device other than the CPU."""
    return dotted_source(node) is not None and device_value(module, node).may_be()


def is_move_to_cuda(module: Module, call: cst.Call) -> bool:
    """Return whether a call puts an object on a CUDA device.

    Examples are ``x.cuda()``, ``x.to("cuda")`` and ``torch.zeros(3, device="cuda")``.

    The device ``"cuda" if … else "cpu"`` also counts as a CUDA device.
    """
    method = called_method_name(call)
    if method == "cuda":
        return True
    device = call_argument(call, 0 if method == "to" else -1, "device")
    if device is None or "cuda" not in device_value(module, device).kinds:
        return False
    names = module.qualified_names(call.func)
    return method == "to" or any(one.startswith("torch.") and one != "torch.device" for one in names)


def calls_initializing_cuda(module: Module, scope: cst.CSTNode, *, nested: bool = False) -> Iterator[cst.Call]:
    """Yield calls in ``scope`` that initialise CUDA, because they move an object to a CUDA device or query CUDA.

    With ``nested``, the result includes calls in functions and classes inside ``scope``.
    """
    for node in walk_code(scope) if nested else nodes_in_scope(scope):
        if isinstance(node, cst.Call) and (
            is_move_to_cuda(module, node) or any(map(_INITIALISING.fullmatch, module.qualified_names(node.func)))
        ):
            yield node
