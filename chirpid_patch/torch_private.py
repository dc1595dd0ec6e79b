"""All undocumented names of PyTorch that this package uses, and its behaviour without them.

Tested on torch 2.13; ``tests/chirpid_patch/test_torch_private.py`` has a test for each name, which fails if PyTorch
changes it.

| name | used for | without it |
|---|---|---|
| ``_MultiProcessingDataLoaderIter`` and its members listed in ``MEMBERS`` | our iterator is PyTorch's own, with a few steps replaced | loaders are PyTorch's, as if ``optimize=False`` |
| ``_SingleProcessDataLoaderIter`` and its members there | our iterator without workers inherits from it | the same |
| ``_MapDatasetFetcher`` of ``_utils.fetch`` | reads samples of all other code | the same |
| ``DataLoader`` and its members there | how a loader creates its iterator, and the parts of the iterator that it keeps | the same |
| ``_set_worker_pids``, ``_remove_worker_pids``, ``_error_if_any_worker_fails`` | a dead worker interrupts only the wait for a batch | the same |
| ``pin_memory`` of ``_utils.pin_memory`` | pinning a batch of any structure in this process | the same |
| ``UntypedStorage._new_shared`` | a worker gathers its batch in shared memory, in which it hands the batch over | the batch is copied once more |
| ``_utils.collate.default_collate_fn_map`` | whether other code changed how tensors, numbers or tuples are collated | samples are read one by one |
| ``_utils.collate.collate``, ``collate_tensor_fn``, ``collate_str_fn`` | samples of several dtypes are collated in this process as in a worker | they are collated as without workers |
| ``Tensor._version`` | whether a tensor was changed in place | nothing is loaded ahead by threads |
| ``nn.modules.module._global_forward_hooks``, ``_global_forward_pre_hooks`` | whether calls of all modules run hooks | declared transforms are called for each sample |
| ``torch.autograd._profiler_enabled`` | ranges are opened only if a profiler runs | ranges are always opened |
"""  # noqa: E501

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, _utils, dataloader, default_collate

#: Members of PyTorch's two iterators and its loader that this package uses: called or replaced methods, and attributes.
# (``_workers_num_tasks``, which torch 2.6 lacks, is set and not read.)
MEMBERS = {
    "_MultiProcessingDataLoaderIter": (
        "_base_seed", "_in_order", "_index_queues", "_index_sampler", "_next_data", "_next_index", "_num_workers",
        "_num_yielded", "_prefetch_factor", "_rcvd_idx", "_reset", "_sampler_iter", "_send_idx", "_shutdown",
        "_shutdown_workers", "_task_info", "_tasks_outstanding", "_try_get_data", "_try_put_index", "_worker_init_fn",
        "_worker_pids_set", "_worker_queue_idx_cycle", "_worker_result_queue", "_workers", "_workers_status",
    ),
    "_SingleProcessDataLoaderIter": ("_base_seed", "_index_sampler", "_next_data", "_sampler_iter"),
    "DataLoader": ("_auto_collation", "_get_iterator", "_index_sampler", "_iterator"),
}  # fmt: skip


def is_complete() -> bool:
    """Return whether PyTorch's classes have all of ``MEMBERS``: in the class, or assigned by its methods."""
    for name, members in MEMBERS.items():
        kind = getattr(dataloader, name, object)
        methods = (vars(base).get(method) for base in kind.__mro__ for method in ("__init__", "_reset"))
        codes = [method.__code__ for method in methods if isinstance(method, FunctionType)]
        lines = (line for code in codes for line in dis.get_instructions(code))
        assigned = {line.argval for line in lines if line.opname == "STORE_ATTR"}
        if not all(member in assigned or hasattr(kind, member) for member in members):
            return False
    return True


try:
    pin_batch: Callable[..., Any] = _utils.pin_memory.pin_memory
    sample_fetcher: Callable[..., Any] = _utils.fetch._MapDatasetFetcher
    watch_workers: Callable[[int, tuple[int, ...]], None] = torch._C._set_worker_pids
    unwatch_workers: Callable[[int], None] = torch._C._remove_worker_pids
    raise_for_dead_worker: Callable[[], None] = torch._C._error_if_any_worker_fails
    #: Whether PyTorch has all names that the iterators need.
    IS_COMPLETE = is_complete()
except AttributeError:
    IS_COMPLETE = False

SingleProcessIterator: Any = getattr(dataloader, "_SingleProcessDataLoaderIter", object)
MultiProcessingIterator: Any = getattr(dataloader, "_MultiProcessingDataLoaderIter", object)

#: Whether a profiler of PyTorch runs.
profiler_enabled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)


def shared_memory(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised contiguous CPU tensor in shared memory; in ordinary memory if there is none."""
    make = getattr(torch.UntypedStorage, "_new_shared", None)
    if make is None:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    size = math.prod(shape)
    flat = torch.empty(0, dtype=dtype, device="cpu").set_(make(size * dtype.itemsize), 0, (size,), (1,))
    return flat.view(tuple(shape))


#: Types of the parts of samples that are collated at once.
_COLLATED = (Tensor, np.ndarray, np.generic, tuple, list, dict, int, float, str, bytes)


#: The last checked table of functions of ``default_collate``, and whether it is PyTorch's original.
_seen_table: tuple[dict[Any, Any], bool] = ({}, False)


def collates_as_published() -> bool:
    """Return whether ``default_collate`` is unchanged; any code may extend its table of functions."""
    global _seen_table
    table = getattr(_utils.collate, "default_collate_fn_map", {object: None})
    seen, published = _seen_table
    if table != seen:
        published = _is_as_published(table)
        _seen_table = dict(table), published
    return published


def _is_as_published(table: Mapping[Any, Any]) -> bool:
    collation = _utils.collate
    others = [kinds for kinds, function in table.items() if getattr(function, "__module__", "") != collation.__name__]
    return not any(issubclass(kind, kinds) for kinds in others for kind in _COLLATED)


def collate_with(samples: Sequence[Any], stack: Callable[[Sequence[Any]], Any], keep: Callable[[Any], Any]) -> Any:
    """Collate as ``default_collate``, with ``stack`` for strided tensors and ``keep`` for values that it passes on.

    If other code changed how tensors are collated, the result is that of ``default_collate`` alone.
    """
    collation = _utils.collate
    table = getattr(collation, "default_collate_fn_map", {})
    published: Callable[..., Any] = getattr(collation, "collate_tensor_fn", default_collate)
    if table.get(Tensor) is not published:
        return default_collate(samples)  # type: ignore[arg-type]

    def collate_tensors(tensors: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        strided = first.layout is torch.strided and not first.is_nested
        return stack(tensors) if strided else collation.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)

    def collate_text(values: Any, *, collate_fn_map: Any = None) -> Any:
        return keep(values)

    plain = getattr(collation, "collate_str_fn", default_collate)
    text: dict[Any, Any] = {kind: collate_text for kind in (str, bytes) if table.get(kind) is plain}
    return collation.collate(samples, collate_fn_map={**table, Tensor: collate_tensors, **text})


def version(tensor: Tensor) -> object:
    """Return a value that changes with each in-place operation of PyTorch on ``tensor``."""
    if tensor.is_inference():
        return object()  # those count nothing
    return getattr(tensor, "_version", object())


def end_workers(loader: DataLoader[Any]) -> None:
    """End the workers that PyTorch's ``loader`` keeps, now instead of at its garbage collection."""
    iterator = getattr(loader, "_iterator", None)
    if iterator is not None:
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        loader._iterator = None


def has_global_hooks() -> bool:
    """Return whether calls of all modules run hooks; True if this version of PyTorch does not show that."""
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    return any(getattr(nn.modules.module, name, True) for name in names)
