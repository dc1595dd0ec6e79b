"""Whether a ``with`` block may go on after an error."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module

#: Context managers that never swallow an exception.
_TRANSPARENT = re.compile(
    r"torch\.(no_grad|enable_grad|inference_mode|set_grad_enabled|device|autocast|amp\.autocast|cuda\.(device|stream))"
    r"|torch\.(cuda|cpu)\.amp\.autocast|torch\.autograd\.(no_grad|enable_grad|set_grad_enabled|inference_mode)"
    r"|builtins\.open"
)


def lets_errors_pass(module: Module, node: cst.With) -> bool:
    """Whether every context manager of a ``with`` is known not to swallow exceptions."""
    return all(is_call_of(module, item.item, _TRANSPARENT) for item in node.items)
