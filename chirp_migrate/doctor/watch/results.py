"""Record the return values of the functions that a dataset's ``__getitem__`` calls to read a sample.

``sys.monitoring`` reports the return values, so the module neither replaces the functions nor calls them again. Python
has ``sys.monitoring`` since version 3.12. With older versions of Python, the module records nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from chirp_migrate.doctor.recording import DatasetFunctionCalls
from chirp_migrate.doctor.watch.objects import attributes_with_paths, is_library_class
from chirp_migrate.training.watch.samples import Hash, add_tensor_to_hash, leaves_by_position

_TOOL_ID = 4
"""Tool id of this module in ``sys.monitoring``. Python reserves other ids for debuggers and profilers."""
_LEAST_S = 1e-3
"""A return value is hashed only if the calls of its function take at least this many seconds on average."""
_QUICK_CALLS, _QUICK_S = 64, 1e-4
"""A function is no longer recorded if its first 64 calls take less than 0.1 ms on average."""

_thread_local = threading.local()


def functions_by_code_object(dataset: Any) -> dict[CodeType, FunctionType]:
    """Return a dictionary: code object → function with this code, for the functions and methods in a dataset.

    The result omits ``__getitem__`` of the outermost dataset, because its return values are the samples.
    """
    found: dict[CodeType, FunctionType] = {}
    for _, value in attributes_with_paths(dataset):
        members = [value]
        if isinstance(value, Dataset):
            members = [one for kind in type(value).__mro__ if not is_library_class(kind) for one in vars(kind).values()]
        for one in members:
            if isinstance(one, FunctionType) and (one.__name__ == "__getitem__" or not one.__name__.startswith("__")):
                found[one.__code__] = one
    called = getattr(type(dataset), "__getitem__", None)
    if isinstance(called, FunctionType):
        found.pop(called.__code__, None)
    return found


class FunctionResultRecorder:
    """Records the calls of a dataset's functions, and hashes of their return values, while this thread reads a batch.

    Args:
        dataset: the dataset whose functions are recorded.
        every: distance between the return values of a function that are hashed. With 1, all return values are hashed;
            with N > 1, every N-th return value; with 0, no return value.
    """

    def __init__(self, dataset: Any, every: int) -> None:
        self._every = every
        self._names = {code: one.__qualname__ for code, one in functions_by_code_object(dataset).items()}
        self._calls: dict[CodeType, DatasetFunctionCalls] = {}
        self._begun: dict[CodeType, list[float]] = {}
        self._calls_of_batch: dict[str, DatasetFunctionCalls] = {}
        if sys.version_info >= (3, 12) and self._names:
            _monitor_calls(self._names)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Return a context in which this object records all calls of the functions in this thread."""
        self._begun, self._calls_of_batch = {}, {}
        _thread_local.watch = self
        try:
            yield
        finally:
            _thread_local.watch = None

    def last_calls(self) -> dict[str, DatasetFunctionCalls]:
        """Return a dictionary: name of a function → its calls in the latest context of :meth:`watching`."""
        return self._calls_of_batch

    def is_quick(self, code: CodeType) -> bool:
        """Return whether calls of a function are no longer recorded, because the function is fast.

        A function is fast if it has at least 64 calls, which take less than 0.1 ms on average.
        """
        all_of_it = self._calls.get(code)
        return all_of_it is not None and all_of_it.calls >= _QUICK_CALLS and all_of_it.mean_s < _QUICK_S

    def begin(self, code: CodeType) -> None:
        """Record that a call of the function with the code object ``code`` begins."""
        self._begun.setdefault(code, []).append(time.perf_counter())

    def end(self, code: CodeType, value: Any) -> None:
        """Record that a call of the function with the code object ``code`` returns ``value``."""
        begun = self._begun.get(code)
        if not begun or code not in self._names:
            return
        seconds = time.perf_counter() - begun.pop()
        all_of_it = self._calls.setdefault(code, DatasetFunctionCalls())
        of_batch = self._calls_of_batch.setdefault(self._names[code], DatasetFunctionCalls())
        for one in (all_of_it, of_batch):
            one.calls += 1
            one.seconds += seconds
        if self._every and all_of_it.calls % self._every == 0 and all_of_it.mean_s >= _LEAST_S:
            with suppress(Exception):  # a return value that cannot be read is not recorded
                of_batch.bytes = _append_hash(of_batch.hashes, value) or of_batch.bytes


def _append_hash(hashes: list[str], value: Any) -> int:
    """Append a hash of the tensors, arrays and images in ``value`` to ``hashes``.

    Return the size of this data in bytes.
    """
    whole, size = Hash(), 0
    for leaf in leaves_by_position(value).values():
        if isinstance(leaf, torch.Tensor):
            add_tensor_to_hash(whole, leaf)
            size += leaf.nbytes
        elif isinstance(leaf, np.ndarray) or _is_decoded_image(leaf):
            content = leaf.tobytes()
            whole.update(content)
            size += len(content)
    if size:
        hashes.append(whole.hexdigest()[:16])
    return size


def _is_decoded_image(leaf: Any) -> bool:
    """Return whether ``leaf`` is a Pillow image whose pixels are already in memory."""
    return type(leaf).__module__.partition(".")[0] == "PIL" and getattr(leaf, "fp", None) is None


if sys.version_info >= (3, 12):
    from sys import monitoring

    def _monitor_calls(codes: dict[CodeType, str]) -> None:
        """Make the interpreter report all calls of these functions.

        If another tool uses the same tool id of ``sys.monitoring``, do nothing.
        """
        if monitoring.get_tool(_TOOL_ID) is None:
            monitoring.use_tool_id(_TOOL_ID, __name__)
            monitoring.register_callback(_TOOL_ID, monitoring.events.PY_START, _on_call)
            monitoring.register_callback(_TOOL_ID, monitoring.events.PY_RETURN, _on_return)
        if monitoring.get_tool(_TOOL_ID) == __name__:
            for code in codes:
                monitoring.set_local_events(_TOOL_ID, code, monitoring.events.PY_START | monitoring.events.PY_RETURN)

    def _on_call(code: CodeType, _offset: int) -> Any:
        watch: FunctionResultRecorder | None = getattr(_thread_local, "watch", None)
        if watch is None:
            return None
        watch.begin(code)
        return monitoring.DISABLE if watch.is_quick(code) else None

    def _on_return(code: CodeType, _offset: int, value: Any) -> Any:
        watch: FunctionResultRecorder | None = getattr(_thread_local, "watch", None)
        if watch is None:
            return None
        watch.end(code, value)
        return monitoring.DISABLE if watch.is_quick(code) else None
