"""A device for tests that is not the CPU: its tensors are tensors on the CPU, which only its own operations see.

PyTorch's experimental backends in Python are what it is made of, so that transfers, pinning, and batches that are made
on a device go through PyTorch's dispatcher as they would for an accelerator. Memory that is pinned is only noted to be.
The device has no streams: what is asynchronous is tested on CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

NAME = "stand_in"

#: What is registered goes with these.
_LIBRARIES: list[torch.library.Library] = []

#: Operations that ran on the device, by name and in their order.
operations: list[str] = []

#: What tensors of the device hold, by their storage, and whether that is still there.
_held: dict[int, tuple[StorageWeakRef, Tensor]] = {}

#: Memory that is pinned, by where it begins.
_pinned: dict[int, StorageWeakRef] = {}


def _is_there(one: Any) -> bool:
    return isinstance(one, Tensor | torch.device) and (one.device if isinstance(one, Tensor) else one).type == NAME


def _wrapped(values: Tensor) -> Tensor:
    """A tensor of the device that holds ``values``."""
    made = torch._C._acc.create_empty_tensor(tuple(values.shape), values.dtype)
    storage = made.untyped_storage()
    _held[storage._cdata] = StorageWeakRef(storage), values
    for key in [key for key, (there, _) in _held.items() if there.expired()]:
        del _held[key]
    return made


def _values(tensor: Tensor) -> Tensor:
    values = _held[tensor.untyped_storage()._cdata][1]
    return values if values.dtype is tensor.dtype else values.view(tensor.dtype)  # PyTorch's own view as another dtype


def _on_cpu(one: Any) -> Any:
    if not _is_there(one):
        return one
    return torch.device("cpu") if isinstance(one, torch.device) else _values(one)


def _run(operation: Any, *arguments: Any, **options: Any) -> Any:
    """Run any operation on the values; tensors that it writes into are returned as they are."""
    operations.append(operation.name())
    given = {
        id(_values(one)): one
        for one in pytree.tree_leaves((arguments, options))
        if _is_there(one) and isinstance(one, Tensor)
    }
    arguments, options = pytree.tree_map(_on_cpu, (arguments, options))
    # Numbers come where the overload wants tensors: the right one is found again.
    result = operation.overloadpacket(*arguments, **options)
    for values, there in ((_values(one), one) for one in given.values()):
        if values.shape != there.shape:
            there.data = _wrapped(values)

    def back(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return given.get(id(one)) if id(one) in given else _wrapped(one)

    return pytree.tree_map(back, result)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    operations.append("aten::_copy_from")
    _on_cpu(target).copy_(_on_cpu(source))
    return target


def _as_strided(tensor: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the values. PyTorch counts as if those of each tensor of the device lay one after the other."""
    operations.append("aten::as_strided")
    values = _values(tensor)
    memory = torch.arange(values.untyped_storage().nbytes() // values.element_size())
    places = memory.as_strided(values.shape, values.stride(), values.storage_offset()).flatten().clone()
    wanted = places.as_strided(size, stride, storage_offset or 0)
    if not wanted.numel():
        return _wrapped(values.new_empty(size))
    first = [0] * wanted.ndim
    begin = int(wanted[tuple(first)])
    ends = [[*first[:axis], min(1, length - 1), *first[axis + 1 :]] for axis, length in enumerate(size)]
    steps = [int(wanted[tuple(end)]) - begin for end in ends]
    assert torch.equal(memory.as_strided(size, steps, begin), wanted), "no view of the values"
    return _wrapped(values.as_strided(size, steps, begin))


def _view(tensor: Tensor, size: Any) -> Tensor:
    """A view of the values, or a copy where they do not lie one after the other: PyTorch asks for either so."""
    operations.append("aten::view")
    return _wrapped(_values(tensor).reshape(size))


def _pin_memory(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    copy = tensor.clone()
    storage = copy.untyped_storage()
    _pinned[storage.data_ptr()] = StorageWeakRef(storage)
    return copy


def _is_pinned(tensor: Tensor, device: torch.device | None = None) -> bool:
    found = _pinned.get(tensor.untyped_storage().data_ptr())
    return found is not None and not found.expired()


def _refuse_to_pin(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")


def register() -> None:
    """Give this process the device, for good."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_run, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("as_strided", _as_strided, "PrivateUse1")
    aten.impl("view", _view, "PrivateUse1")
    aten.impl("_pin_memory", _refuse_to_pin, "PrivateUse1")
    aten.impl("_pin_memory", _pin_memory, "CPU")
    aten.impl("is_pinned", _is_pinned, "CPU")
    _LIBRARIES.extend((every, aten))
