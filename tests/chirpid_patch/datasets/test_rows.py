"""A tensor or array as the dataset: its batches are those of PyTorch's loader, bit for bit."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from originals import global_states, seed_all
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate, random_split

from chirpid_patch import BatchedDataLoader, WorkerSafeSequenceDataset, create_loader, lists_samples
from chirpid_patch.datasets import samples
from chirpid_patch.datasets.gather import is_in_memory, permits_batched_reading
from chirpid_patch.datasets.samples import load_batch

#: Every kind of dtype; PyTorch has no dtype for some of them.
KINDS = (
    "?",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    "U3",
    "S2",
    "M8[s]",
    "O",
)
NATIVE = [np.dtype(kind) for kind in KINDS]
SWAPPED = [np.dtype(f">{kind}") for kind in ("i2", "f4", "f8")]
#: Bytes of which numbers consist: among them are signalling NaNs, infinities and negative zeros.
BYTES = (0, 1, 0x7F, 0x80, 0xA0, 0xF0, 0xFF)
#: How a view of an array lies in memory.
LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "plain": lambda array: array,
    "every second row": lambda array: array[::2],
    "rows backwards": lambda array: array[::-1],
    "columns backwards": lambda array: array[..., ::-1],
    "other order in memory": np.asfortranarray,
    "axes moved": lambda array: array.swapaxes(0, -1),
    "read-only": lambda array: np.broadcast_to(array, array.shape),
    "field of records": lambda array: np.rec.fromarrays([array, array], names="x,y")["x"],
    "subclass": lambda array: array.view(np.recarray),
    "masked": lambda array: np.ma.masked_array(array, np.zeros(array.shape, bool)),
    "scalar": lambda array: array.reshape(-1)[0],
}


@st.composite
def arrays(draw: Any) -> Any:
    dtype = draw(st.sampled_from(NATIVE + SWAPPED))
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple))
    if dtype.kind in "biufc" and dtype.itemsize <= 16 and dtype.char != "g":
        size = int(np.prod(shape)) * dtype.itemsize
        pattern = draw(st.lists(st.sampled_from(BYTES), min_size=1, max_size=19))
        raw = bytes(pattern[place % len(pattern)] for place in range(size))
        array = np.frombuffer(bytes(one & 1 for one in raw) if dtype.kind == "b" else raw, dtype).reshape(shape).copy()
    else:
        array = draw(hnp.arrays(dtype, shape)) if dtype.kind != "O" else np.full(shape, 1, object)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](array)


#: What is made of an array: the dataset of the loader.
DATASETS: dict[str, Callable[[Any], Any]] = {
    "array": lambda array: array,
    "tensor": torch.as_tensor,
    "tensor that requires grad": lambda array: torch.as_tensor(array).requires_grad_(),
    "parameter": lambda array: torch.nn.Parameter(torch.as_tensor(array), requires_grad=False),
    "conjugate": lambda array: torch.as_tensor(array).conj(),
    "sparse": lambda array: torch.as_tensor(array).to_sparse(),
    "subset": lambda array: Subset(array, range(len(array) - 1, -1, -1)),  # type: ignore[arg-type]
    "subset of a tensor": lambda array: Subset(torch.as_tensor(array), [0] * len(array)),  # type: ignore[arg-type]
    "concatenation": lambda array: ConcatDataset([array, array]),  # type: ignore[list-item]
    "concatenation of two kinds": lambda array: ConcatDataset([array, torch.as_tensor(array)]),  # type: ignore[list-item]
    "concatenation with samples of parts": lambda array: ConcatDataset(
        [torch.as_tensor(array), TensorDataset(torch.as_tensor(array))]  # type: ignore[list-item]
    ),
    "concatenation of two shapes": lambda array: ConcatDataset([array, array[:, None]]),  # type: ignore[list-item]
    "subset of a concatenation": lambda array: Subset(ConcatDataset([array, array]), [0, 0]),  # type: ignore[list-item]
    "sequence": WorkerSafeSequenceDataset,
}


def bits(value: Any) -> Any:
    """What can be compared of a batch: type, dtype, shape, strides and bytes of each tensor."""
    if isinstance(value, list | tuple):
        return type(value), [bits(one) for one in value]
    if not isinstance(value, Tensor):
        return type(value), repr(value)
    if value.layout is not torch.strided:
        return value.layout, bits(value.to_dense())
    flags = value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.is_conj()
    raw = value.detach().resolve_conj().contiguous().reshape(-1)
    return type(value), flags, raw.view(torch.uint8).numpy().tobytes() if raw.numel() else b""


def outcome(make: Callable[[], Any], *, as_worker: bool = False) -> tuple[list[Any], Any, Any]:
    """Batches as bits, error, and random states after a loop over the loader that ``make`` builds."""
    seed_all(3)
    found: list[Any] = []
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for batch in make():
                found.append(bits(batch))
                torch.rand(1)
        except Exception as caught:  # whatever PyTorch raises is the expected result
            error = type(caught), "" if as_worker else str(caught)
            # They hold PyTorch's iterator in a cycle. Its workers must not be ended by the garbage collector, which may
            # close their pipes first, and which also runs in processes that are forked later.
            traceback.clear_frames(caught.__traceback__)
    return found, error, global_states()


def is_same(make: Callable[..., Any], dataset: Any, *arguments: Any, **options: Any) -> bool:
    """Whether the loader that ``make`` builds does what PyTorch's does; errors of workers only have the same type."""
    as_worker = "num_workers" in options
    expected = outcome(lambda: DataLoader(dataset, *arguments, **options), as_worker=as_worker)
    return outcome(lambda: make(dataset, *arguments, **options), as_worker=as_worker) == expected


def dataset_of(array: Any, kind: str) -> Any:
    """The dataset; None if PyTorch cannot make it of this array."""
    try:
        return DATASETS[kind](array)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None


@settings(max_examples=600)
@example(np.frombuffer(b"\0\0\xa0\x7f" * 3, "f4").copy(), "array", 2, False)  # signalling NaNs
@example(np.arange(3, dtype="u8"), "array", 2, False)
@example(np.zeros((3, 2, 3, 4, 5)).swapaxes(1, 4), "array", 2, False)
@given(
    array=arrays(),
    kind=st.sampled_from(sorted(DATASETS)),
    batch_size=st.sampled_from([None, 1, 2, 3, 30]),
    shuffle=st.booleans(),
)
def test_without_workers(array: Any, kind: str, batch_size: int | None, shuffle: bool) -> None:
    dataset = dataset_of(array, kind)
    assert dataset is None or is_same(create_loader, dataset, batch_size, shuffle=shuffle)


BATCHED: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.rand(9, 2),
    "numbers in a tensor": lambda: torch.arange(9),
    "array": lambda: np.random.rand(9, 2, 3),
    "whole numbers in an array": lambda: np.arange(9),
    "strided array": lambda: np.asfortranarray(np.random.rand(9, 3).astype("f4"))[::2],
    "part of an array": lambda: random_split(np.random.rand(9, 2), [4, 5])[1],  # type: ignore[arg-type]
    "joined arrays": lambda: ConcatDataset([np.random.rand(9, 2), np.random.rand(4, 2)]),  # type: ignore[list-item]
    "sequence over an array": lambda: WorkerSafeSequenceDataset(np.random.rand(9, 2)),
    "declared class over an array": lambda: Windows(np.random.rand(9, 2)),
    "declared class over a tensor": lambda: Windows(torch.rand(9, 2)),
}
NOT_BATCHED: dict[str, Callable[[], Any]] = {
    "text": lambda: np.array(["a", "b"]),
    "objects": lambda: np.array([[1], [2]], dtype=object),
    "memory map": lambda: np.zeros((4, 2)).view(np.memmap),
    "masked array": lambda: np.ma.masked_array(np.zeros((4, 2))),
    "matrix": lambda: np.asmatrix(np.zeros((4, 2))),
    "read-only array": lambda: np.broadcast_to(np.zeros(2), (4, 2)),
    "other byte order": lambda: np.zeros((4, 2), ">f4"),
    "records": lambda: np.zeros(4, "i4,f4"),
    "dates": lambda: np.zeros((4, 2), "M8[s]"),
    "short floats in one dimension": lambda: np.zeros(4, "f4"),
    "no dimension": lambda: np.zeros(()),
    "parameter": lambda: torch.nn.Parameter(torch.zeros(4, 2)),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "list": lambda: [torch.zeros(2)] * 4,
}


@lists_samples("windows")
class Windows(Dataset[Any]):
    """A user's dataset over an array of equally long windows."""

    def __init__(self, windows: Any) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: Any) -> Any:
        return self.windows[index]


@pytest.mark.parametrize("name", BATCHED)
def test_rows_are_read_a_batch_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = BATCHED[name]()
    indices = [3, 0, -1, 3] * 8
    expected = default_collate([dataset[index] for index in indices])
    monkeypatch.setattr(samples, "fetch_samples", None)
    batch = load_batch(dataset, indices, None, default_collate)
    assert is_in_memory(dataset)
    assert bits(batch) == bits(expected)
    batch.zero_()
    assert bits(load_batch(dataset, indices, None, default_collate)) == bits(expected), "a view of the dataset"


@pytest.mark.parametrize("name", NOT_BATCHED)
def test_other_arrays_are_read_by_pytorch(name: str) -> None:
    assert not permits_batched_reading(NOT_BATCHED[name]())


def test_threads_load_rows_ahead() -> None:
    rows = np.random.rand(64, 3).astype("f4")
    expected = outcome(lambda: DataLoader(rows, 4, shuffle=True))
    assert outcome(lambda: create_loader(rows, 4, shuffle=True, prefetch_threads=2)) == expected


@pytest.mark.parametrize("make", [create_loader, BatchedDataLoader])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_give_the_same_batches(method: str, make: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"num_workers": 1 if method == "spawn" else 2, "multiprocessing_context": method}
    parts: list[Any] = [np.random.rand(5, 3), np.random.rand(4, 3)]
    for dataset in (parts[0], torch.arange(7), ConcatDataset(parts)) if method == "fork" else (ConcatDataset(parts),):
        assert is_same(make, dataset, 2, shuffle=True, **options)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    make=st.sampled_from([create_loader, BatchedDataLoader]),
    array=arrays(),
    kind=st.sampled_from(sorted(DATASETS)),
    persistent=st.booleans(),
)
def test_forked_workers_give_the_same_batches(
    make: Callable[..., Any], array: Any, kind: str, persistent: bool
) -> None:
    dataset = dataset_of(array, kind)
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": persistent}
    assert dataset is None or is_same(make, dataset, 2, **options)
