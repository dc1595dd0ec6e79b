"""Where code puts things on a CUDA device, and so initialises CUDA in its process."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.queries import keywords, method_called, own_nodes

#: Functions of ``torch.cuda`` that initialise CUDA when they are called.
_INITIALISING = re.compile(
    r"torch\.cuda\.((memory|random|streams)\.)?(init|set_device|current_device|synchronize|mem_get_info|get_rng_state"
    r"|get_device_(name|properties|capability)|current_stream|default_stream|current_blas_handle|Event|Stream"
    r"|reset_(max|peak)_memory_\w+)"
)


def moves_to_cuda(module: Module, call: cst.Call) -> bool:
    """Whether a call puts something on a CUDA device: ``x.cuda()``, ``x.to("cuda")``, ``device="cuda"``."""
    method = method_called(call)
    if method == "cuda":
        return True
    device = keywords(call).get("device")
    if method == "to":
        first = call.args[0] if call.args and call.args[0].keyword is None and not call.args[0].star else None
        device = first.value if device is None and first is not None else device
        return device is not None and _names_cuda(module, device)
    if device is None or not _names_cuda(module, device):
        return False
    return any(one.startswith("torch.") and one != "torch.device" for one in module.qualified_names(call.func))


def cuda_uses(module: Module, scope: cst.CSTNode, *, nested: bool = False) -> Iterator[cst.Call]:
    """Calls in ``scope`` that initialise CUDA, because they move something there or ask something that only CUDA knows.

    ``nested``: also those in functions and classes inside it.
    """
    for node in walk(scope) if nested else own_nodes(scope):
        if isinstance(node, cst.Call) and (
            moves_to_cuda(module, node) or any(map(_INITIALISING.fullmatch, module.qualified_names(node.func)))
        ):
            yield node


def _names_cuda(module: Module, device: cst.BaseExpression) -> bool:
    """Whether an expression names a CUDA device, where there is one: also ``"cuda" if … else "cpu"``."""
    return "cuda" in device_value(module, device).kinds
