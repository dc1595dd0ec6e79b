"""Check whether a ``with`` block may swallow an error."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module

#: Context managers that never swallow an exception.
_TRANSPARENT = re.compile(
    r"torch\.(no_grad|enable_grad|inference_mode|set_grad_enabled|device|autocast|amp\.autocast|cuda\.(device|stream))"
    r"|torch\.(cuda|cpu)\.amp\.autocast|torch\.autograd\.(no_grad|enable_grad|set_grad_enabled|inference_mode)"
    r"|torch\.(random\.fork_rng|profiler\.(profile|record_function))"
    r"|(builtins|io|gzip|bz2|lzma|tarfile)\.open|zipfile\.ZipFile|h5py\.File"
    r"|contextlib\.(closing|nullcontext|redirect_stdout|redirect_stderr|chdir)|warnings\.catch_warnings"
    r"|tempfile\.(TemporaryDirectory|NamedTemporaryFile|TemporaryFile|SpooledTemporaryFile)"
    r"|multiprocessing\.Pool|concurrent\.futures\.(Thread|Process)PoolExecutor|numpy\.(errstate|printoptions)|tqdm\..*"
)


def swallows_no_exceptions(module: Module, node: cst.With) -> bool:
    """Return whether no context manager of a ``with`` statement can swallow exceptions."""
    return all(manager_swallows_no_exceptions(module, item) for item in node.items)


def manager_swallows_no_exceptions(module: Module, item: cst.WithItem) -> bool:
    """Return whether a context manager provably swallows no exceptions."""
    return is_call_of(module, item.item, _TRANSPARENT)
