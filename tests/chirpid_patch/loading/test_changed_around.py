"""What a program does around a loader in the middle of an epoch, or to what PyTorch shares: ours does as PyTorch's."""

from __future__ import annotations

import copy
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from originals import same
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    get_worker_info,
    random_split,
)
from torch.utils.data._utils.collate import default_collate_fn_map

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeStandardizedDataset
from chirpid_patch.datasets.rows import index_select_supports
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest

N = 24
Make = Callable[..., Any]


def rows(start: int = 0) -> TensorDataset:
    return TensorDataset(torch.arange(start, start + N, dtype=torch.float32), torch.arange(N))


def bigger_batches(make: Make) -> list[Any]:
    batches: Any = BatchSampler(SequentialSampler(rows()), 2, False)
    seen = []
    for batch in make(rows(), batch_sampler=batches):
        batches.batch_size += 1
        seen.append(batch)
    return seen


def mined_indices(make: Make) -> list[Any]:
    sampler = SubsetRandomSampler(list(range(12)))
    seen = []
    for batch in make(rows(), batch_size=2, sampler=sampler):
        sampler.indices = [3] * 12
        seen.append(batch)
    return seen


def counted_lengths(make: Make) -> list[Any]:
    class Counted(TensorDataset):
        asked = 0

        def __len__(self) -> int:
            Counted.asked += 1
            return super().__len__()

    loader = make(Counted(*rows().tensors), batch_size=5)
    return [*loader, *loader, torch.tensor(Counted.asked)]


def many_parts(make: Make) -> list[Any]:
    parts = [rows(100 * number) for number in range(20)]
    seen = []
    for batch in make(ConcatDataset(parts), batch_size=16):
        for part in parts:
            part.tensors[0].add_(1)
        seen.append(batch)
    return seen


def other_default_device(make: Make) -> list[Any]:
    batches = iter(make(rows(), batch_size=5))
    with torch.device("meta"):
        return [next(batches), next(batches)]


class ChangedResults(TorchFunctionMode):
    """Changes the result of every stack."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.stack else result


class RecordedOperations(TorchDispatchMode):
    """Records the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class RecordedFunctions(TorchFunctionMode):
    """Records the names of all functions and attributes of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def recorded_epochs(make: Make, dataset: Any) -> list[Any]:
    seen: list[Any] = []
    for mode, batch_size in itertools.product((RecordedFunctions, RecordedOperations), (2, N)):
        loader = make(dataset, batch_size=batch_size)
        with mode() as recorded:
            seen += loader
        with mode() as recorded_again:
            seen += loader
        seen += [recorded.names, recorded_again.names]
    return seen


def operation_modes(make: Make, **arguments: Any) -> list[Any]:
    loader = make(rows(), batch_size=5, **arguments)
    batches = iter(loader)
    seen = [next(batches), next(batches)]
    with ChangedResults():
        seen += [next(batches), *loader]
    with RecordedOperations() as operations:
        seen.append(next(batches))
    return [*seen, operations.names, *batches]


class Unreadable(Sampler[Any]):
    """Batches of indices, one of which is none."""

    def __iter__(self) -> Iterator[Any]:
        return iter([[0, 1], 5, [2, 3]])


def a_batch_of_nothing(make: Make, **arguments: Any) -> list[Any]:
    batches = iter(make(rows(), batch_sampler=Unreadable(), **arguments))
    seen = [next(batches)]
    with pytest.raises(TypeError):
        next(batches)
    return [*seen, *batches]


@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
@pytest.mark.parametrize(
    "program",
    [
        bigger_batches,
        mined_indices,
        counted_lengths,
        many_parts,
        other_default_device,
        operation_modes,
        a_batch_of_nothing,
    ],
)
def test_it_is_seen_as_by_pytorch(program: Callable[[Make], list[Any]], make: Make) -> None:
    torch.manual_seed(0)
    expected = program(DataLoader)
    torch.manual_seed(0)
    assert same(program(make), expected)


def warned_places(make: Make) -> list[Any]:
    def collate(batch: Any) -> Any:
        warnings.warn("slow", stacklevel=2)
        return batch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch_size in (5, None):
            list(make(rows(), batch_size=batch_size, collate_fn=collate))
    return [(warning.filename, warning.lineno) for warning in caught]


@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
def test_a_warning_of_a_function_comes_from_pytorchs_module(make: Make) -> None:
    assert warned_places(make) == warned_places(DataLoader)


def test_a_mode_sees_operations_although_threads_load_ahead() -> None:
    assert same(operation_modes(BatchedDataLoader, prefetch_threads=2), operation_modes(DataLoader))


def test_a_worker_raises_where_a_batch_is_none() -> None:
    assert same(a_batch_of_nothing(BatchedDataLoader, num_workers=1), a_batch_of_nothing(DataLoader))


@pytest.mark.parametrize(
    ("kind", "function"), [(Tensor, lambda batch, **_: len(batch)), (tuple, lambda batch, **_: len(batch))]
)
def test_who_extends_pytorchs_collation_is_asked(
    kind: type, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(default_collate_fn_map, kind, function)
    assert list(BatchedDataLoader(rows(), batch_size=5)) == list(DataLoader(rows(), batch_size=5))


@pytest.mark.start_method("fork", reason="other workers do not see what a test replaces, PyTorch's neither")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
@pytest.mark.parametrize(
    ("kind", "name", "method"),
    [
        (TensorDataset, "__getitem__", lambda data, index: (data.tensors[0][index] + 1, index)),
        (TensorDataset, "__getitems__", lambda data, indices: [(index, -index) for index in indices]),
        (Subset, "__getitems__", lambda data, indices: [data.dataset[index] for index in indices]),
        (ConcatDataset, "__getitem__", lambda data, index: data.datasets[-1][index % N]),
        (ConcatDataset, "__len__", lambda data: 7),
        (Dataset, "__getitems__", lambda data, indices: [(index, -index) for index in indices]),
    ],
)
def test_who_replaces_a_method_of_pytorchs_datasets_is_asked(
    kind: type, name: str, method: Callable[..., Any], make: Make, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, method, raising=False)
    for data in (rows(), Subset(rows(), [5, 4, 3, 2]), ConcatDataset([rows(), rows(100)])):
        expected = list(DataLoader(data, batch_size=3))
        assert same(list(make(data, batch_size=3, num_workers=num_workers)), expected)


def test_a_collation_of_other_types_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        pass

    monkeypatch.setitem(default_collate_fn_map, Own, lambda batch, **_: batch)
    monkeypatch.setattr(Tensor, "__getitem__", lambda *_: pytest.fail("read one by one"))
    assert len(list(BatchedDataLoader(rows(), batch_size=5))) == 5


class Prepared(TensorDataset):
    """A dataset that workers prepare, each its own copy of the one that they were forked with."""


prepared = Prepared(*rows().tensors)


def prepare(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None and info.dataset is prepared
    prepared.tensors = (prepared.tensors[0] + 1000, prepared.tensors[1])


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_worker_begins_with_the_very_dataset() -> None:
    arguments: dict[str, Any] = {
        "batch_size": 5,
        "num_workers": 1,
        "worker_init_fn": prepare,
        "multiprocessing_context": "fork",
    }
    assert same(list(BatchedDataLoader(prepared, **arguments)), list(DataLoader(prepared, **arguments)))


def test_a_dataset_may_refer_to_its_own_splits() -> None:
    dataset: Any = rows()
    dataset.train, dataset.test = random_split(dataset, [16, 8])
    for arguments in ({"num_workers": 1}, {"prefetch_threads": 1}):
        assert same(list(BatchedDataLoader(dataset.train, 4, **arguments)), list(DataLoader(dataset.train, 4)))


def test_new_memory_at_an_old_address_is_read_again() -> None:
    dataset: Any = rows()
    for count, (x, _) in enumerate(BatchedDataLoader(dataset, 2, prefetch_threads=1)):
        assert x.tolist() == [100.0 * count + 2 * count, 100.0 * count + 2 * count + 1]
        labels, dataset.tensors = dataset.tensors[1], None
        dataset.tensors = (torch.arange(N, dtype=torch.float32) + 100 * (count + 1), labels)


def test_what_a_thread_could_not_read_while_it_was_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = BatchReader.read

    def fail_on_threads(reader: BatchReader, request: BatchRequest) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise TypeError("the dataset has no tensors just now")
        return read(reader, request)

    monkeypatch.setattr(BatchReader, "read", fail_on_threads)
    assert same(list(BatchedDataLoader(rows(), 5, prefetch_threads=1)), list(DataLoader(rows(), 5)))


def test_a_loader_takes_any_attribute() -> None:
    class Own(BatchedDataLoader[Any]):
        def __init__(self, dataset: Any) -> None:
            super().__init__(dataset, 5)
            self.device = torch.device("meta")

    loader: Any = Own(rows())
    loader.epochs = loader.placement = loader.worker_processes = 10
    assert same(list(loader), list(DataLoader(rows(), 5)))
    assert (loader.epochs, loader.worker_processes, loader.device.type) == (10, 10, "meta")


class WhoReads(TensorDataset):
    """Samples that name the process that reads them."""

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor([index, get_worker_info() is not None])


def other_workers(make: Make) -> list[Any]:
    loader = make(WhoReads(torch.zeros(4)), batch_size=2, num_workers=0)
    loader.num_workers, loader.prefetch_factor = 1, 2
    return list(loader)


@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
def test_workers_asked_for_later_are_used(make: Make) -> None:
    batches = other_workers(make)
    assert same(batches, other_workers(DataLoader))
    assert all(rows[:, 1].all() for rows in batches)


@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
def test_a_generator_that_is_none_is_refused_as_by_pytorch(make: Make) -> None:
    with pytest.raises(TypeError):
        list(make(rows(), batch_size=2, shuffle=True, generator=3))


@pytest.mark.slow
def test_a_copy_shares_the_workers_that_are_kept() -> None:
    orders = []
    for kind in (DataLoader, BatchedDataLoader):
        generator = torch.Generator().manual_seed(3)
        loader: Any = kind(rows(), 5, shuffle=True, num_workers=1, persistent_workers=True, generator=generator)
        first = list(loader)
        orders.append([*first, *copy.copy(loader), *loader])
    assert same(*orders)


@pytest.mark.parametrize("make", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
@pytest.mark.parametrize(
    "dataset",
    [
        rows(),
        Subset(rows(), range(7)),
        ConcatDataset([rows(), rows()]),
        torch.ones(6, 2),
        [torch.ones(2)] * 6,
        [(torch.ones(2), 1)] * 6,
        WorkerSafeStandardizedDataset(TensorDataset(torch.rand(6, 2), torch.arange(6)), range(6), 0.5, 0.1),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_a_mode_sees_only_the_operations_of_pytorchs_loader(dataset: Any, make: Make) -> None:
    # Whether PyTorch can select rows of a dtype is tried once in each process.
    index_select_supports.cache_clear()
    assert same(recorded_epochs(make, dataset), recorded_epochs(DataLoader, dataset))
