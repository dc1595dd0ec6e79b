"""A dataset that reads whole batches from NumPy arrays, memory-mapped files or tensors."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.datasets.gather import Batch, BatchedDataset, RowKinds
from chirpid_patch.datasets.rows import allocate_batch_like, gather_rows, index_select_supports, nonnegative_indices
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.transforms.off_cpu import as_exact_operand, send_to_device


@dataclass(frozen=True)
class _MappedFile:
    """The file of a memory-mapped array, and the position of the array in the file.

    A pickled dataset contains this object instead of the contents of the array.
    """

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def of_array(cls, array: Any) -> _MappedFile | None:
        """Return file and position of ``array`` if ``array`` is a contiguous memory map of a file; else None."""
        root = array
        while isinstance(root, np.memmap) and not isinstance(root.base, mmap.mmap):
            root = root.base
        if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
            return None
        if not array.flags.c_contiguous or not Path(root.filename).is_file():
            return None
        skipped = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return cls(str(root.filename), array.dtype.str, root.offset + skipped, array.shape)

    def open(self) -> Tensor:
        """Map the file into this process for reading, and return the array as a tensor."""
        return _as_tensor(np.memmap(self.path, self.dtype, "r", self.offset, self.shape), "its file")


class _WritableView:
    """A view of a read-only NumPy array. The view reports to PyTorch that its memory is writable.

    PyTorch has no read-only tensors, and warns when a tensor is created over a read-only array. ``_WritableView``
    avoids the warning. The view is safe, because this module never writes to the memory.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # owns the memory
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _as_tensor(values: Any, name: str) -> Tensor:
    """Return ``values`` as a tensor that uses the same memory. ``name`` is the name of ``values`` in error messages."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    try:
        return torch.from_numpy(array if array.flags.writeable else np.asarray(_WritableView(array)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"PyTorch has no dtype for {name}, an array of {array.dtype}: {error}") from None


class WorkerSafeArrayDataset(BatchedDataset):
    """A dataset of samples (x[i], y[i]), where x and y are arrays.

    A loader of this package reads a whole batch from the arrays at once.

    For example, ``WorkerSafeArrayDataset(x, y, dtype=torch.float32, divisor=255)[i]`` returns
    ``torch.from_numpy(x[i]).float() / 255`` and the label ``y[i]``. The dataset does not copy the arrays. Each sample
    is a copy of one row of ``x`` and one row of ``y``.

    If an array is a contiguous memory map of a file, a pickled dataset contains the path of this file, and not the
    contents of the file. Each worker process maps the file again, so the path must refer to the same file in the
    worker.

    Args:
        x: NumPy array, memory map, CPU tensor or list of numbers, of shape (N, …). Row i is the x of sample i.
        y: array of any type that ``x`` may have, of shape (N, …). Row i is the label of sample i.
        dtype: dtype of the x that the dataset returns; None keeps the dtype of the array.
        divisor: number by which x is divided after the conversion to ``dtype``; with None, x is not divided.

    Raises:
        ValueError: ``x`` and ``y`` differ in length, or one of them is 0-dim. The error also occurs if ``divisor`` is
            passed and the returned x has an integer dtype. Then pass ``dtype=torch.float32``, too.
        TypeError: PyTorch has no equivalent of the dtype of ``x`` or ``y``.
    """

    in_memory = fixed_samples = gathers = True  # a memory-mapped file counts as memory

    def __init__(self, x: Any, y: Any, *, dtype: torch.dtype | None = None, divisor: float | None = None) -> None:
        self.x = _as_tensor(x, "x")
        self.y = _as_tensor(y, "y")
        files = {"x": _MappedFile.of_array(x), "y": _MappedFile.of_array(y)}
        #: Maps ``x`` and ``y``, if memory-mapped, to the file and the tensor. If code later assigns another tensor to
        #: ``x`` or ``y``, pickling stores the new tensor instead of the file.
        self._mapped = {name: (file, getattr(self, name)) for name, file in files.items() if file is not None}
        self.dtype = dtype
        self.divisor = divisor
        if self.x.ndim == 0 or self.y.ndim == 0 or len(self.x) != len(self.y):
            shapes = f"{tuple(self.x.shape)} and {tuple(self.y.shape)}"
            raise ValueError(f"x and y must have one row for each sample; they have the shapes {shapes}")
        if divisor is not None and not self._stored_as().is_floating_point:
            raise ValueError(
                f"divisor needs floating-point samples, but the samples would have {self._stored_as()}: "
                "pass dtype=torch.float32"
            )

    def _stored_as(self) -> torch.dtype:
        return self.x.dtype if self.dtype is None else self.dtype

    def __len__(self) -> int:
        return len(self.x)

    @property
    def row_kinds(self) -> RowKinds | None:
        return [(self._stored_as(), self.x.shape[1:]), (self.y.dtype, self.y.shape[1:])]

    @property
    def count(self) -> int | None:
        return len(self.x)

    def read_sample(self, index: Any, key: RandomKey | None) -> tuple[Tensor, Tensor]:
        x = self.x[index].to(self._stored_as(), copy=True)
        return (x if self.divisor is None else x.div_(self.divisor)), self.y[index].clone()

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        positions = nonnegative_indices(indices, len(self.x)) if len(self.x) == len(self.y) else None
        if positions is None or not (index_select_supports(self.x.dtype) and index_select_supports(self.y.dtype)):
            return None
        rows = torch.tensor(positions, device="cpu")
        dtype = self._stored_as()
        if dtype == self.x.dtype:
            batch = gather_rows(self.x, rows)
        else:
            chosen = torch.index_select(self.x, 0, send_to_device(rows, self.x.device))
            batch = allocate_batch_like(self.x, len(rows), dtype).copy_(chosen)
        if self.divisor is not None:
            batch.div_(as_exact_operand(self.divisor, batch))
        return [batch, gather_rows(self.y, rows)]

    def __getstate__(self) -> dict[str, Any]:
        files = {name: file for name, (file, tensor) in self._mapped.items() if getattr(self, name) is tensor}
        return {**self.__dict__, **dict.fromkeys(files), "_mapped": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        opened = {name: (file, file.open()) for name, file in state["_mapped"].items()}
        self.__dict__.update(state, _mapped=opened)
        for name, (_, tensor) in opened.items():
            setattr(self, name, tensor)
