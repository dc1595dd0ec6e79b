"""All undocumented names of PyTorch that this package uses.

All these names exist in torch 2.13. ``tests/chirpid_patch/test_torch_private.py`` has a test for each name. The last
column of this table is the effect if PyTorch lacks the name.

| name | used for | without it |
|---|---|---|
| ``_MultiProcessingDataLoaderIter`` and its members in ``MEMBERS`` | base class of the iterator with workers | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``_SingleProcessDataLoaderIter`` and its members in ``MEMBERS`` | base class of the iterator without workers | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``_MapDatasetFetcher`` of ``_utils.fetch`` | reading samples of datasets that are not of this package | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``DataLoader`` as a direct subclass of ``Generic`` | finding PyTorch's own class ``DataLoader`` if other code has replaced ``torch.utils.data.DataLoader`` | if other code has replaced ``DataLoader``, ``chirpid_patch`` cannot be imported |
| ``DataLoader`` and its members in ``MEMBERS`` | creating the iterator of a loader, and keeping the iterator between epochs | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``_set_worker_pids``, ``_remove_worker_pids``, ``_error_if_any_worker_fails`` | raising the error for a dead worker only while the training loop waits for a batch | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``pin_memory`` of ``_utils.pin_memory`` | pinning a batch of any structure in the main process | PyTorch's own iterators load all batches, as with ``optimize=False`` |
| ``UntypedStorage._new_shared`` | gathering the batch of a worker directly in shared memory | the worker copies the batch once more |
| ``_utils.collate.default_collate_fn_map`` | detecting that other code changed how tensors, numbers or tuples are collated | loaders read the samples of a batch one by one instead of all at once |
| ``_utils.collate.collate``, ``collate_tensor_fn``, ``collate_str_fn`` | collating in the main process as in a worker process, where the batch has the dtype of the first sample | the main process collates as with ``num_workers=0``, where the batch has the common dtype of all samples |
| ``Tensor._version`` | detecting that a tensor was changed in place | threads load no batches in advance, and a resident dataset is copied to the device again for each batch |
| ``nn.modules.module._global_forward_hooks``, ``_global_forward_pre_hooks`` | detecting hooks that run for every module | transforms with a decorator of ``transforms.declared`` run their own code for each sample |
| ``torch._C._len_torch_dispatch_stack``, ``_len_torch_function_stack``, ``_get_function_stack_at``, ``torch.utils._device.DeviceContext`` | detecting modes (``TorchDispatchMode``) that record or change operations of PyTorch | loaders still use batched reading and threads, so such modes miss operations |
| ``torch._C.DisableTorchFunction``, ``_DisableTorchDispatch`` | looking at the tensors of a dataset without being seen by such modes | at the start of an epoch, such modes also see how the loader looks at the tensors |
| ``torch.autograd._profiler_enabled`` | opening profiler ranges only while a profiler runs | profiler ranges are always opened |
"""  # noqa: E501

from __future__ import annotations

import contextlib
import dis
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import _utils, dataloader, default_collate

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as DataLoader
else:
    # Debugging code may have replaced the class in PyTorch's modules before the import of this package.
    _own = (
        kind
        for kind in Generic.__subclasses__()
        if (kind.__module__, kind.__qualname__) == (dataloader.__name__, "DataLoader")
    )
    DataLoader = next(_own, dataloader.DataLoader)

#: Maps PyTorch's loader and iterators to the methods and attributes that this package uses. (The package also sets
#: ``_workers_num_tasks``, but never reads this attribute, which torch 2.6 lacks.)
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


def torch_has_all_members() -> bool:
    """Return whether PyTorch's classes have all members in ``MEMBERS``.

    A class has a member if its source code defines the member, or assigns the member in ``__init__`` or ``_reset``.
    """
    for name, members in MEMBERS.items():
        kind = DataLoader if name == "DataLoader" else getattr(dataloader, name, object)
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
    IS_COMPLETE = torch_has_all_members()
except AttributeError:
    IS_COMPLETE = False

SingleProcessIterator: Any = getattr(dataloader, "_SingleProcessDataLoaderIter", object)
MultiProcessingIterator: Any = getattr(dataloader, "_MultiProcessingDataLoaderIter", object)
#: The modules in which PyTorch looks up the classes that read batches, each with the name of the class.
READER_PLACES: tuple[tuple[Any, str], ...] = (
    (dataloader, "_SingleProcessDataLoaderIter"),
    (dataloader, "_MultiProcessingDataLoaderIter"),
    (getattr(_utils, "fetch", None), "_MapDatasetFetcher"),
)

#: Returns whether a profiler of PyTorch runs.
profiler_enabled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)

#: Functions that return the number of active modes, and the mode at a position. ``torch.device`` creates modes of the
#: type ``_DeviceMode``.
_dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
_function_mode_at: Callable[[int], object] = getattr(torch._C, "_get_function_stack_at", lambda position: None)
try:
    from torch.utils._device import DeviceContext as _DeviceMode
except ImportError:
    _DeviceMode = type(None)  # type: ignore[assignment,misc]


def has_active_torch_modes() -> bool:
    """Return whether a mode such as ``TorchDispatchMode`` in this thread may record or change operations of PyTorch.

    ``torch.set_default_device`` and ``with torch.device(...)`` do not count, because they affect only new tensors.
    """
    count = _function_modes()
    return _dispatch_modes() > 0 or (
        count > 0 and any(type(_function_mode_at(position)) is not _DeviceMode for position in range(count))
    )


@contextlib.contextmanager
def hidden_from_torch_modes() -> Iterator[None]:
    """Hide the operations in the body of the ``with`` statement from modes such as ``TorchDispatchMode``."""
    with (
        getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)(),
        getattr(torch._C, "_DisableTorchDispatch", contextlib.nullcontext)(),
    ):
        yield


def empty_shared_tensor(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised contiguous CPU tensor in shared memory.

    If PyTorch lacks the private function for shared storage, the tensor is in ordinary memory.
    """
    make = getattr(torch.UntypedStorage, "_new_shared", None)
    if make is None:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    size = math.prod(shape)
    flat = torch.empty(0, dtype=dtype, device="cpu").set_(make(size * dtype.itemsize), 0, (size,), (1,))
    return flat.view(tuple(shape))


#: Types that PyTorch's original code must collate. Only then does batched reading yield the same batches.
_COLLATED = (Tensor, np.ndarray, np.generic, tuple, list, dict, int, float, str, bytes)


#: Copy of the last checked ``default_collate_fn_map``, and whether this copy is equal to PyTorch's original.
_seen_table: tuple[dict[Any, Any], bool] = ({}, False)


def default_collate_is_unchanged() -> bool:
    """Return whether ``default_collate`` still collates the types in ``_COLLATED`` with PyTorch's own code.

    The result is False if other code has registered functions for these types in ``default_collate_fn_map``.
    """
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


def default_collate_with(
    samples: Sequence[Any], stack_tensors: Callable[[Sequence[Any]], Any], combine_strings: Callable[[Any], Any]
) -> Any:
    """Collate samples as ``default_collate`` does, but with other functions for tensors and text.

    If other code has changed how tensors are collated, the function only calls ``default_collate``.

    Args:
        samples: the samples of a batch.
        stack_tensors: function that builds a batch from a list of strided tensors.
        combine_strings: function that builds a batch from a list of strings or bytes.
    """
    collation = _utils.collate
    table = getattr(collation, "default_collate_fn_map", {})
    published: Callable[..., Any] = getattr(collation, "collate_tensor_fn", default_collate)
    if table.get(Tensor) is not published:
        return default_collate(samples)  # type: ignore[arg-type]

    def collate_tensors(tensors: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        strided = first.layout is torch.strided and not first.is_nested
        return (
            stack_tensors(tensors) if strided else collation.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
        )

    def collate_text(values: Any, *, collate_fn_map: Any = None) -> Any:
        return combine_strings(values)

    plain = getattr(collation, "collate_str_fn", default_collate)
    text: dict[Any, Any] = {kind: collate_text for kind in (str, bytes) if table.get(kind) is plain}
    return collation.collate(samples, collate_fn_map={**table, Tensor: collate_tensors, **text})


def tensor_version(tensor: Tensor) -> object:
    """Return a value that changes with each in-place operation of PyTorch on ``tensor``.

    Inference tensors have no version counter. For an inference tensor, every call returns a different value.
    """
    if tensor.is_inference():
        return object()
    return getattr(tensor, "_version", object())


def end_workers(loader: DataLoader[Any]) -> None:
    """End the persistent workers of PyTorch's ``loader`` now, and not only when the loader is garbage-collected."""
    iterator = getattr(loader, "_iterator", None)
    if iterator is not None:
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        loader._iterator = None


def has_global_hooks() -> bool:
    """Return whether code has registered a forward hook for all modules.

    If this version of PyTorch lacks the dictionaries of such hooks, the result is True, so that no hook is skipped.
    """
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    return any(getattr(nn.modules.module, name, True) for name in names)
