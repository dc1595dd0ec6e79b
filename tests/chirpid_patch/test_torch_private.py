"""What is used of PyTorch without being documented is there and does what it did: a test for each name.

One of these failing on a new version of PyTorch says which line of ``torch_private.py`` to look at.
"""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import signal
import time
import types
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, run, same, tensor_data
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info
from torch.utils.data import dataloader as torch_dataloader

from chirpid_patch import BatchedDataLoader, torch_private
from chirpid_patch.loading.in_process import InProcessIterator
from chirpid_patch.loading.worker_iterator import _OF_THE_EPOCH, WorkerIterator

posix = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs fork and signals")


MEMBERS = [(kind, member) for kind, names in torch_private.MEMBERS.items() for member in names]


def test_every_member_is_there() -> None:
    assert torch_private.IS_COMPLETE and torch_private.torch_has_all_members()


@pytest.mark.parametrize(("kind", "member"), MEMBERS)
def test_every_member_is_missed(kind: str, member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch that calls it otherwise; without the iterators the loader is PyTorch's, see below."""
    for base in getattr(torch_dataloader, kind).__mro__[:-1]:
        if member in vars(base):
            monkeypatch.delattr(base, member)
        for name in ("__init__", "_reset"):
            method = vars(base).get(name)
            if method is not None:
                names = tuple(f"{one}_" if one == member else one for one in method.__code__.co_names)
                code = method.__code__.replace(co_names=names)
                renamed = types.FunctionType(code, method.__globals__, name, None, method.__closure__)
                monkeypatch.setattr(base, name, renamed)
    assert not torch_private.torch_has_all_members()


def test_methods_take_what_they_took() -> None:
    iterator = torch_private.MultiProcessingIterator
    assert list(inspect.signature(iterator._reset).parameters) == ["self", "loader", "first_iter"]
    assert list(inspect.signature(iterator._try_get_data).parameters) == ["self", "timeout"]
    for name in ("_next_data", "_next_index", "_try_put_index", "_shutdown_workers"):
        assert list(inspect.signature(getattr(iterator, name)).parameters) == ["self"]
    assert list(inspect.signature(DataLoader._get_iterator).parameters) == ["self"]


def test_an_iterator_with_workers_keeps_its_books_as_it_did() -> None:
    iterator: Any = iter(DataLoader(PairDataset(9), 2, num_workers=2))
    for name in _OF_THE_EPOCH:
        assert name in vars(iterator), name
    # The next number to send and to deliver, the worker of each batch under way, and how many each has.
    assert (iterator._send_idx, iterator._rcvd_idx, iterator._tasks_outstanding) == (4, 0, 4)
    assert iterator._task_info == {0: (0,), 1: (1,), 2: (0,), 3: (1,)}
    assert iterator._workers_status == [True, True]
    assert getattr(iterator, "_workers_num_tasks", [2, 2]) == [2, 2]  # torch >= 2.7
    assert isinstance(iterator._worker_queue_idx_cycle, itertools.cycle)
    assert len(iterator._workers) == len(iterator._index_queues) == 2
    assert (iterator._shutdown, iterator._worker_pids_set) == (False, True)
    next(iterator)
    assert (iterator._send_idx, iterator._rcvd_idx, iterator._num_yielded) == (5, 1, 1)
    iterator._shutdown_workers()
    assert iterator._shutdown and not iterator._worker_pids_set
    assert not any(worker.is_alive() for worker in iterator._workers)


def test_a_loader_makes_and_keeps_its_iterators_as_it_did() -> None:
    loader = DataLoader(PairDataset(4), 2, num_workers=1, persistent_workers=True)
    assert loader._iterator is None and loader._auto_collation
    assert loader._index_sampler is loader.batch_sampler
    iterator: Any = iter(loader)
    assert loader._iterator is iterator and iter(loader) is iterator
    torch_private.end_workers(loader)
    assert loader._iterator is None
    plain = DataLoader(PairDataset(4), None)
    assert not plain._auto_collation and plain._index_sampler is plain.sampler


def test_an_iterator_in_the_process_has_a_fetcher_and_a_seed() -> None:
    iterator: Any = iter(DataLoader(PairDataset(4), 2))
    assert isinstance(iterator._base_seed, int)
    assert same(iterator._dataset_fetcher.fetch([0, 1]), next(iterator))


@posix
def test_a_dead_worker_is_told_of_only_while_it_is_watched() -> None:
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    process.start()
    assert process.pid is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    torch_private.raise_for_dead_worker()
    torch_private.watch_workers(7, (process.pid,))
    with pytest.raises(ValueError, match="only once"):
        torch_private.watch_workers(7, (process.pid,))
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid \d+\) exited unexpectedly with exit code 3"):
        torch_private.raise_for_dead_worker()
    with pytest.raises(ValueError, match="Cannot find"):  # as told once, it is forgotten, or not: both are met
        torch_private.unwatch_workers(7)
        torch_private.unwatch_workers(7)
    process.join()


def test_batches_are_pinned_by_pytorchs_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *device: self + 1)
    pinned = torch_private.pin_batch({"x": [torch.zeros(2), 3]}, "cuda")
    assert pinned["x"][0].tolist() == [1, 1] and pinned["x"][1] == 3


def test_shared_memory_is_shared_or_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (torch.float32, torch.uint8, torch.bfloat16):
        for shape in ((3, 2), (0, 4), (5,)):
            tensor = torch_private.empty_shared_tensor(shape, dtype)
            assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (shape, dtype, True)
            assert tensor.is_shared()
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", None, raising=False)
    assert torch_private.empty_shared_tensor((3, 2), torch.float32).shape == (3, 2)


def test_a_version_changes_in_place() -> None:
    tensor = torch.zeros(3)
    before = torch_private.tensor_version(tensor)
    assert torch_private.tensor_version(tensor) == before
    tensor.add_(1)
    assert torch_private.tensor_version(tensor) != before
    with torch.inference_mode():
        uncounted = torch.zeros(1)
        assert torch_private.tensor_version(uncounted) != torch_private.tensor_version(uncounted)


def test_collation_is_as_published_until_somebody_adds_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_private.default_collate_is_unchanged()
    monkeypatch.setitem(torch.utils.data._utils.collate.default_collate_fn_map, torch.Tensor, lambda batch, **_: batch)
    assert not torch_private.default_collate_is_unchanged()


def test_tensors_and_text_can_be_put_together_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    collation = torch.utils.data._utils.collate
    samples = [(torch.ones(2), "a", {"b": [np.ones(1), 1]})] * 2
    assert same(torch_private.default_collate_with(samples, len, len), [2, 2, {"b": [2, torch.tensor([1, 1])]}])
    with pytest.raises(RuntimeError, match="sparse"):
        torch_private.default_collate_with([torch.ones(2).to_sparse()], len, len)
    monkeypatch.delattr(collation, "collate_tensor_fn")
    assert same(torch_private.default_collate_with(samples, len, len), default_collate(samples))


def test_a_running_profiler_is_seen() -> None:
    assert not torch_private.profiler_enabled()
    with torch.autograd.profiler.profile():
        assert torch_private.profiler_enabled()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_profile_names_the_iterator_as_pytorch_does(num_workers: int) -> None:
    names = []
    for kind in (DataLoader, BatchedDataLoader):
        for dataset in (PairDataset(4), tensor_data(4)):
            loader = kind(dataset, 2, num_workers=num_workers)
            with torch.autograd.profiler.profile() as profile:
                assert len(list(loader)) == 2
            names.append({event.name for event in profile.function_events if event.name.startswith("enumerate")})
    assert names == [names[0]] * 4 and names[0]


def test_modes_that_see_operations_are_seen() -> None:
    assert not torch_private.has_active_torch_modes()
    with torch.device("meta"):
        assert not torch_private.has_active_torch_modes()
        with TorchFunctionMode():
            assert torch_private.has_active_torch_modes()
    with TorchDispatchMode():
        assert torch_private.has_active_torch_modes()
    assert not torch_private.has_active_torch_modes()


class ForbidsFunctions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


class ForbidsOperations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


@pytest.mark.parametrize("mode", [ForbidsFunctions, ForbidsOperations])
def test_modes_do_not_see_hidden_operations(mode: type[TorchFunctionMode | TorchDispatchMode]) -> None:
    rows = torch.ones(2, 3)
    with mode():
        with torch_private.hidden_from_torch_modes():
            assert rows.is_cpu and torch.equal(rows.index_select(0, torch.zeros(1, dtype=torch.int64)), rows[:1])
        with pytest.raises(AssertionError):
            rows.add(1)


class TellsItsDataset(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> str:
        info = get_worker_info()
        assert info is not None
        return type(info.dataset).__name__


def test_the_workers_own_dataset_can_be_put_in_its_place() -> None:
    info = torch.utils.data._utils.worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=1)
    with pytest.raises((RuntimeError, AttributeError), match=r"(?i)cannot assign"):
        info.dataset = 2
    object.__setattr__(info, "dataset", 2)
    assert info.dataset == 2
    with BatchedDataLoader(TellsItsDataset(), collate_fn=list, num_workers=1) as loader:
        assert list(loader) == [["TellsItsDataset"], ["TellsItsDataset"]]


def test_without_the_iterators_the_loader_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True}
    for workers in (0, 1):
        expected = run(DataLoader(tensor_data(7), num_workers=workers, **options))
        with monkeypatch.context() as patch:
            patch.setattr("chirpid_patch.loading.loader.IS_COMPLETE", False)
            loader = BatchedDataLoader(tensor_data(7), num_workers=workers, **options)
            assert not isinstance(iter(loader), InProcessIterator | WorkerIterator)
            actual = run(loader)
        assert same(actual[0], expected[0]) and actual[1] == expected[1]


@pytest.mark.slow
@posix
def test_the_news_of_a_death_waits_for_the_loop_to_ask() -> None:
    batches: Any = iter(BatchedDataLoader(PairDataset(40), batch_size=2, num_workers=1))
    next(batches)
    os.kill(batches._workers[0].pid, signal.SIGKILL)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        time.sleep(0.01)  # PyTorch's handler would raise here
    assert len(list(batches)) == 19


def test_hooks_of_all_modules_are_seen() -> None:
    assert not torch_private.has_global_hooks()
    for register in ("register_module_forward_hook", "register_module_forward_pre_hook"):
        handle = getattr(torch.nn.modules.module, register)(print)
        assert torch_private.has_global_hooks()
        handle.remove()
    assert not torch_private.has_global_hooks()
