"""Batches on the device: the same batches, the same random numbers, and copies in the right order (R-001)."""

from __future__ import annotations

import copy
import pickle
import random
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from originals import RandomPairDataset, same, seed_all, tensor_data
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory
from chirpid_patch.device import prefetch as device_prefetch
from chirpid_patch.device.prefetch import DeviceIterator, DevicePrefetcher, SideStream, move_batch

#: A device that every machine has beside the CPU; its tensors hold no values.
META = torch.device("meta")
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sample:
    x: Tensor
    name: str


class Graph:
    """A batch of a class of its own that knows how to move."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: Any) -> Graph:
        return Graph(self.x.to(device))


class Named(UserDict[str, Any]):
    """A mapping that holds more than its items."""

    encoding = "none"


# --- what moves ---------------------------------------------------------------------------------------------


def test_everything_that_has_a_device_moves_however_nested() -> None:
    mapping = Named(x=torch.ones(2))
    mapping.encoding = "utf-8"
    batch = (
        [torch.ones(2), {"x": torch.ones(2), "names": ["a", "b"]}],
        Pair(torch.ones(2), 3),
        Sample(torch.ones(2), "a"),
        Graph(torch.ones(2)),
        OrderedDict(x=torch.ones(2)),
        mapping,
        None,
    )
    (plain, in_dict), pair, sample, graph, ordered, named, nothing = move_batch(batch, "meta")
    assert plain.device == in_dict["x"].device == pair.x.device == sample.x.device == META
    assert graph.x.device == ordered["x"].device == named["x"].device == META
    assert in_dict["names"] == ["a", "b"]
    assert (type(pair), pair.y, type(sample), sample.name, nothing) == (Pair, 3, Sample, "a", None)
    assert (type(ordered), type(named), named.encoding) == (OrderedDict, Named, "utf-8")
    assert batch[0][0].device.type == "cpu"


def test_a_packed_sequence_moves_except_for_its_batch_sizes() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(5)], enforce_sorted=False)
    moved = move_batch({"x": packed}, META)["x"]
    assert isinstance(moved, PackedSequence)
    assert moved.data.device == moved.sorted_indices.device == moved.unsorted_indices.device == META
    assert moved.batch_sizes.device.type == "cpu"


def test_what_is_there_already_and_what_has_no_device_stays_the_same_object() -> None:
    batch = [torch.ones(2), {"x": torch.ones(2)}, Pair(np.ones(2), "text"), b"bytes", 1.5, {1, 2}]
    assert move_batch(batch, "cpu") is batch
    partly = move_batch([{"x": 1}, torch.ones(2)], META)
    assert partly[0] == {"x": 1}
    assert partly[1].device == META


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("use", [lambda: move_batch([], "cuda"), lambda: DevicePrefetcher([], "cuda:0")])
def test_a_device_that_is_not_there_is_a_clear_error(use: Any) -> None:
    with pytest.raises(ValueError, match=r"no CUDA device for 'cuda.*pass device='cpu'"):
        use()


# --- a loader to its callers --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_and_random_numbers_are_those_of_the_loader_at_every_moment(workers: int) -> None:
    def train(wrap: Any) -> list[Any]:
        seed_all(3)
        loader = DataLoader(RandomPairDataset(9), 2, shuffle=True, num_workers=workers)
        steps = []
        for _ in range(2):
            for x, y in wrap(loader):
                steps.append((x, y, random.random(), np.random.rand(), torch.rand(1)))  # as a step would
        return steps

    assert same(train(lambda loader: DevicePrefetcher(loader, "cpu")), train(lambda loader: loader))


def test_everything_else_is_the_loaders() -> None:
    data = tensor_data(10)
    loader = DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0))
    prefetcher = DevicePrefetcher(loader, "cpu")
    assert len(prefetcher) == len(loader) == 2
    assert prefetcher.dataset is data
    assert prefetcher.batch_sampler is loader.batch_sampler
    prefetcher.sampler.set_epoch(3)
    assert loader.sampler.epoch == 3
    with pytest.raises(AttributeError, match="no_such"):
        prefetcher.no_such  # noqa: B018


def test_it_is_iterated_anew_left_early_and_twice_at_once() -> None:
    prefetcher = DevicePrefetcher(DataLoader(tensor_data(6), 2), "cpu")
    whole = [y.tolist() for _, y in prefetcher]
    for _, y in prefetcher:
        assert y.tolist() == whole[0]
        break
    assert [y.tolist() for _, y in prefetcher] == whole
    assert all(same(one, other) for one, other in zip(prefetcher, prefetcher, strict=True))


def test_any_iterable_of_batches_will_do_and_its_errors_pass() -> None:
    assert list(DevicePrefetcher([1, "a"], "cpu")) == [1, "a"]

    def breaks() -> Iterator[Any]:
        yield torch.ones(1)
        raise OSError("disk")

    batches = iter(DevicePrefetcher(breaks(), "cpu"))
    next(batches)
    with pytest.raises(OSError, match="disk"):
        next(batches)


@pytest.mark.parametrize("twin", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_it_can_be_copied_and_pickled(twin: Any) -> None:
    prefetcher = DevicePrefetcher(BatchedDataLoader(tensor_data(4), 2), "cpu", lookahead=True)
    other = twin(prefetcher)
    assert (other.device, other.lookahead, len(list(other))) == (torch.device("cpu"), True, 2)


# --- the side stream ----------------------------------------------------------------------------------------


class Pinned(Tensor):
    """A tensor that says that it is in pinned memory, and notes on which stream it is used."""

    events: list[Any]

    def is_pinned(self, device: Any = None) -> bool:
        return True

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        there = super().to(device)
        there.events = self.events
        self.events.append(("copy", FakeCuda.current, non_blocking))
        return there

    def record_stream(self, stream: Any) -> None:
        self.events.append(("used on", stream.name))


def pinned(events: list[Any], *shape: int) -> Pinned:
    tensor = torch.ones(*shape).as_subclass(Pinned)
    tensor.events = events
    return tensor


class FakeCuda:
    """What stands for ``torch.cuda``: notes what is asked of streams and events."""

    current = "main"

    def __init__(self) -> None:
        self.log: list[Any] = []

    def Stream(self, device: Any) -> Any:
        return FakeStream("side", self.log)

    def Event(self) -> Any:
        return FakeEvent(self.log)

    def current_stream(self, device: Any) -> Any:
        return FakeStream(FakeCuda.current, self.log)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        FakeCuda.current = stream.name
        try:
            yield
        finally:
            FakeCuda.current = "main"


class FakeStream:
    def __init__(self, name: str, log: list[Any]) -> None:
        self.name = name
        self.log = log

    def wait_event(self, event: Any) -> None:
        self.log.append((self.name, "waits for the copy"))


class FakeEvent:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def record(self, stream: Any) -> None:
        self.log.append((stream.name, "copy ends"))

    def synchronize(self) -> None:
        self.log.append("copy awaited")


def test_pinned_batches_are_copied_on_the_side_and_awaited_by_the_stream_that_uses_them() -> None:
    cuda = FakeCuda()
    side = SideStream(META, cuda)
    take = side.start({"x": pinned(cuda.log, 2), "y": [pinned(cuda.log, 1)], "name": "a"})
    assert cuda.log == [("copy", "side", True), ("copy", "side", True), ("side", "copy ends")]
    cuda.log.clear()
    moved = take()
    assert cuda.log == [("main", "waits for the copy"), ("used on", "main"), ("used on", "main")]
    assert moved["x"].device == moved["y"][0].device == META
    assert moved["name"] == "a"


def test_the_loader_is_only_asked_again_when_the_last_copy_from_its_memory_is_over() -> None:
    cuda = FakeCuda()

    def loader() -> Iterator[Any]:
        for _ in range(2):
            cuda.log.append("loader asked")
            yield pinned([], 2)

    batches = DeviceIterator(loader(), SideStream(META, cuda), lookahead=False)
    assert len(list(batches)) == 2
    one = ["loader asked", ("side", "copy ends"), ("main", "waits for the copy")]
    assert cuda.log == [*one, "copy awaited", *one, "copy awaited"]


@pytest.mark.parametrize(
    "batch", [torch.ones(2), [pinned([], 2), torch.ones(2)], [pinned([], 2), Graph(torch.ones(2))]]
)
def test_what_is_not_known_to_be_pinned_is_moved_in_order_when_it_is_wanted(batch: Any) -> None:
    cuda = FakeCuda()
    take = SideStream(META, cuda).start(batch)
    assert cuda.log == []
    parts = take() if isinstance(batch, list) else [take()]
    assert [getattr(part, "x", part).device for part in parts] == [META] * len(parts)
    assert cuda.log == []


def test_an_empty_tensor_needs_no_pinned_memory_and_what_is_there_no_copy() -> None:
    cuda, there = FakeCuda(), torch.ones(2, device=META)
    nothing = pinned([], 0)
    nothing.is_pinned = lambda device=None: False  # as PyTorch says of it
    empty, kept, moved = SideStream(META, cuda).start([nothing, there, pinned([], 2)])()
    assert empty.device == moved.device == META
    assert kept is there
    assert ("side", "copy ends") in cuda.log


def test_batches_that_are_not_pinned_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chirpid_patch")
    side = SideStream(META, FakeCuda())
    for _ in range(3):
        side.start(torch.ones(2))
    assert [record.getMessage() for record in caplog.records if "pin_memory=True" in record.getMessage()] == [
        "batches are not in pinned memory, their copies wait: give the loader pin_memory=True"
    ]


# --- one batch ahead ----------------------------------------------------------------------------------------


def counted(batches: list[Any], asked: list[int]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        asked.append(number)
        if isinstance(batch, Exception):
            raise batch
        yield batch


def test_with_lookahead_the_next_batch_is_under_way_while_one_is_trained_on() -> None:
    asked: list[int] = []
    batches = DeviceIterator(counted([10, 11, 12], asked), SideStream(META, FakeCuda()), lookahead=True)
    seen = []
    for batch in batches:
        seen.append((batch, list(asked)))
    assert seen == [(10, [0, 1]), (11, [0, 1, 2]), (12, [0, 1, 2])]
    assert next(batches, None) is None


def test_with_lookahead_an_error_still_comes_after_the_batch_before_it() -> None:
    batches = DeviceIterator(counted([10, OSError("disk")], []), SideStream(META, FakeCuda()), lookahead=True)
    assert next(batches) == 10
    with pytest.raises(OSError, match="disk"):
        next(batches)
    assert list(batches) == []


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(8))


class OwnLoader(DataLoader[Any]):
    """Somebody's own, which may do anything when it is asked."""


def loaders() -> dict[str, tuple[Any, int]]:
    """Loaders, and how many batches are asked of each by the time the first is there."""
    data, workers = tensor_data(8), {"num_workers": 1}
    return {
        "workers": (DataLoader(data, 2, shuffle=True, **workers), 2),
        "ours with workers": (BatchedDataLoader(data, batch_size=2, **workers), 2),
        "code in this process": (DataLoader(data, 2, shuffle=True), 1),
        "the caller's generator": (DataLoader(data, 2, shuffle=True, generator=torch.Generator(), **workers), 1),
        "an unknown sampler": (DataLoader(data, 2, sampler=list(range(8)), **workers), 1),
        "an iterable dataset": (DataLoader(Endless(), 2, **workers), 1),
        "a loader of somebody's own": (OwnLoader(data, 2, **workers), 1),
        "one rank": (OptimalDataLoaderFactory.create_training_loader(data, 2), 1),
        "a list": ([1, 2, 3], 1),
    }


@pytest.mark.parametrize("name", loaders())
def test_a_loader_is_asked_early_only_where_nothing_else_can_notice(name: str, monkeypatch: Any) -> None:
    started: list[Any] = []

    class Side:
        def __init__(self, device: torch.device) -> None:
            assert device == torch.device("cuda", 1)

        def settle(self) -> None:
            pass

        def start(self, batch: Any) -> Any:
            started.append(batch)
            return lambda: batch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(device_prefetch, "SideStream", Side)
    loader, expected = loaders()[name]
    next(iter(DevicePrefetcher(loader, "cuda")))
    assert len(started) == expected
    started.clear()
    next(iter(DevicePrefetcher(loader, "cuda", lookahead=True)))
    assert len(started) == 2


# --- with a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lookahead", [False, True])
def test_on_cuda_every_batch_arrives_whole_while_the_device_is_busy(lookahead: bool) -> None:
    buffer = torch.empty(1 << 22).pin_memory()

    def loader() -> Iterator[Tensor]:
        for number in range(20):
            buffer.fill_(number)  # written over each time: the copy before must be over
            yield buffer

    weights = torch.randn(2048, 2048, device="cuda")
    sums = []
    for batch in DevicePrefetcher(loader(), "cuda", lookahead=lookahead):
        assert batch.is_cuda
        for _ in range(20):
            weights = torch.tanh(weights @ weights)
        sums.append(batch.mean() + 0 * weights[0, 0])
        del batch
    assert torch.stack(sums).tolist() == list(range(20))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_training_is_the_same_as_with_copies_in_the_step() -> None:
    def train(prefetch: bool) -> Any:
        seed_all(0)
        loader = DataLoader(tensor_data(64), 8, shuffle=True, pin_memory=True)
        batches: Any = DevicePrefetcher(loader, "cuda") if prefetch else loader
        total = torch.zeros((), device="cuda")
        for x, y in batches:
            total = total * 1.5 + (x.to("cuda").sum() * y.to("cuda").sum())
        return total.item(), torch.rand(1).item()

    assert train(True) == train(False)
