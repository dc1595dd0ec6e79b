"""Batches on the device: the same batches, the same random numbers, and copies in the right order."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import RandomPairDataset, same, seed_all, tensor_data
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory
from chirpid_patch.device import move_ahead as device_prefetch
from chirpid_patch.device import side_stream
from chirpid_patch.device.move_ahead import DeviceIterator, DevicePrefetcher, move_batch
from chirpid_patch.device.moving import map_parts
from chirpid_patch.device.side_stream import BatchCopy

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


# --- a device that does everything as late as it may --------------------------------------------------------


class LateDevice:
    """What stands for a CUDA device and its stream for copies.

    It copies only when somebody waits for a copy, or ``work`` lets it: what is written over too early is copied wrong.
    Its tensors are on the CPU. ``log`` has what it was asked, in order.
    """

    def __init__(self, device: torch.device = META) -> None:
        self.device = device
        self.log: list[Any] = []
        self._queue: list[tuple[Tensor, Tensor]] = []
        self.done = 0

    def pinned(self, source: Tensor) -> Tensor:
        self.log.append(("pinned", source.numel()))
        return torch.empty_like(source).copy_(source)

    @contextmanager
    def on_copy_stream(self) -> Iterator[None]:
        yield

    def copy(self, source: Tensor) -> Tensor:
        there = torch.zeros_like(source)
        self._queue.append((there, source))
        return there

    def copied(self) -> LateEvent:
        return LateEvent(self, len(self._queue))

    def hand_over(self, copies: list[Tensor], copied: Any) -> None:
        self.log.append(("handed over", len(copies), copied.number))

    def work(self, copies: int) -> None:
        """Do some of the copies that are queued."""
        queued = self._queue[self.done : self.done + copies]
        for there, source in queued:
            there.copy_(source)
        self.done += len(queued)

    def finish(self) -> None:
        self.work(len(self._queue))


class LateEvent:
    def __init__(self, device: LateDevice, number: int) -> None:
        self.number = number
        self._device = device

    def synchronize(self) -> None:
        self._device.log.append(("waited for", self.number))
        self._device.work(self.number - self._device.done)


class Pinned(Tensor):
    """A tensor that says that it is in pinned memory."""

    def is_pinned(self, device: Any = None) -> bool:
        return True


class OwnTensor(Tensor):
    """A tensor of somebody's own."""


def pinned(*values: float) -> Tensor:
    return torch.tensor(values).as_subclass(Pinned)


def plain(moved: Any) -> Any:
    return map_parts(moved, lambda part: part.as_subclass(Tensor) if isinstance(part, Tensor) else part)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> LateDevice:
    """The CUDA device that a prefetcher finds."""
    device = LateDevice(torch.device("cuda", 1))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(device_prefetch, "CudaCopyStream", lambda wanted: device if wanted == device.device else None)
    return device


# --- copies: whole, and in order ----------------------------------------------------------------------------

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.uint8, torch.int64, torch.bool, torch.float16, torch.complex64])


@st.composite
def batches(draw: Any) -> list[list[Tensor]]:
    """Batches of a loader whose shapes and dtypes may change with every batch."""
    count, generator = draw(st.integers(1, 12)), torch.Generator().manual_seed(draw(st.integers(0, 99)))
    made = []
    for _ in range(count):
        forms = draw(st.lists(st.tuples(shapes, dtypes), max_size=3))
        made.append([torch.randint(0, 2, shape, generator=generator).to(dtype) for shape, dtype in forms])
    return made


@settings(max_examples=60)
@given(made=batches(), lookahead=st.booleans(), progress=st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_every_batch_arrives_whole_however_late_the_device_copies(
    made: list[list[Tensor]], lookahead: bool, progress: list[int]
) -> None:
    device = LateDevice()
    expected = copy.deepcopy(made)
    arrived = []
    for batch in DeviceIterator(iter(made), device, lookahead=lookahead):
        device.work(progress[len(arrived)])
        arrived.append(batch)
    device.finish()
    assert len(arrived) == len(expected)
    assert all(same(list(one), other) for one, other in zip(arrived, expected, strict=True))


def test_the_host_waits_for_no_copy_out_of_memory_that_was_pinned_here(late: LateDevice) -> None:
    x = torch.arange(12.0).view(6, 2)
    arrived = list(DevicePrefetcher(DataLoader(TensorDataset(x), 1), "cuda"))
    assert [asked[0] for asked in late.log] == ["pinned", "handed over"] * 6
    late.finish()
    assert torch.equal(torch.cat([part for (part,) in arrived]), x)


def test_memory_that_the_loader_writes_to_again_is_copied_before_it_is_asked(late: LateDevice) -> None:
    for buffer in (torch.zeros(2), pinned(0, 0)):

        def reusing(buffer: Tensor = buffer) -> Iterator[Tensor]:
            for number in range(8):
                yield buffer.fill_(number)

        arrived = list(DevicePrefetcher(reusing(), "cuda", lookahead=True))
        late.finish()
        assert [float(x[0]) for x in arrived] == list(range(8))


def test_a_loader_whose_batches_are_the_receivers_is_not_waited_for(
    late: LateDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_stream, "is_in_pinned_memory", lambda tensor: True)
    data = TensorDataset(torch.arange(6.0))
    for collate, waited in ((None, 0), (lambda samples: torch.stack([x for (x,) in samples]), 3)):
        late.log.clear()
        arrived = list(DevicePrefetcher(DataLoader(data, 2, collate_fn=collate), "cuda"))
        assert len([asked for asked in late.log if asked[0] == "waited for"]) == waited
        late.finish()
        assert torch.equal(torch.cat([x if collate else x[0] for x in arrived]), torch.arange(6.0))


def test_parts_in_pinned_memory_are_copied_directly_beside_parts_that_are_pinned_first() -> None:
    device = LateDevice()
    there = torch.ones(2, device=META)
    batch = {"x": pinned(1, 2), "y": [torch.tensor([3]), there, torch.ones(0)], "name": "a"}
    moved = BatchCopy(batch, device).hand_over()
    assert device.log == [("pinned", 1), ("pinned", 0), ("handed over", 3, 3)]
    assert moved["y"][1] is there and moved["name"] == "a"
    device.finish()
    assert plain(moved["x"]).tolist() == [1, 2] and moved["y"][0].tolist() == [3] and moved["y"][2].shape == (0,)


def test_what_lies_otherwise_in_memory_lies_so_on_the_device() -> None:
    device = LateDevice()
    images = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    part, expanded = torch.arange(12).view(3, 4)[:, 1:3], torch.ones(1, 3).expand(2, 3)
    moved = BatchCopy([images, part, expanded], device).hand_over()
    device.finish()
    assert moved[0].is_contiguous(memory_format=torch.channels_last)
    assert [one.is_contiguous() for one in moved[1:]] == [True, True]
    assert all(torch.equal(one, other) for one, other in zip(moved, [images, part, expanded], strict=True))


def test_a_packed_sequence_is_copied_whole() -> None:
    device = LateDevice()
    packed = pack_sequence([torch.arange(2.0), torch.arange(5.0)], enforce_sorted=False)
    moved = BatchCopy((packed, "a"), device).hand_over()[0]
    device.finish()
    assert torch.equal(moved.data, packed.data) and torch.equal(moved.batch_sizes, packed.batch_sizes)
    assert torch.equal(moved.sorted_indices, packed.sorted_indices)
    assert torch.equal(moved.unsorted_indices, packed.unsorted_indices)


def test_a_batch_that_is_on_the_device_passes_untouched() -> None:
    device = LateDevice()
    batch = [torch.ones(2, device=META), "a"]
    assert BatchCopy(batch, device).hand_over() is batch
    assert device.log == []


@pytest.mark.parametrize(
    "batch",
    [
        [pinned(1), Graph(torch.ones(2))],
        [torch.ones(2, requires_grad=True)],
        [torch.ones(2).to_sparse()],
        [torch.ones(2).as_subclass(OwnTensor)],
    ],
    ids=["moves itself", "in a graph", "sparse", "a tensor of somebody's own"],
)
def test_what_cannot_be_copied_aside_is_moved_in_order(batch: list[Any]) -> None:
    device = LateDevice()
    moved = BatchCopy(batch, device).hand_over()
    assert [getattr(part, "x", part).device for part in moved] == [META] * len(batch)
    assert device.log == []


@pytest.mark.parametrize("inference", [False, True])
def test_batches_are_inference_tensors_exactly_where_the_loop_runs_in_that_mode(
    inference: bool, late: LateDevice
) -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0)), 2)
    with torch.inference_mode(inference):
        modes = [x.is_inference() for (x,) in DevicePrefetcher(loader, "cuda", lookahead=True)]
    assert modes == [inference] * 3


# --- one batch ahead ----------------------------------------------------------------------------------------


def counted(batches: list[Any], asked: list[int]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        asked.append(number)
        if isinstance(batch, Exception):
            raise batch
        yield batch


def test_with_lookahead_the_next_batch_is_under_way_while_one_is_trained_on(late: LateDevice) -> None:
    asked: list[int] = []
    batches = iter(DevicePrefetcher(counted([torch.tensor(n) for n in range(3)], asked), "cuda", lookahead=True))
    seen = []
    for batch in batches:
        late.finish()
        seen.append((int(batch), list(asked)))
    assert seen == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2])]
    assert next(batches, None) is None


def test_with_lookahead_an_error_still_comes_after_the_batch_before_it(late: LateDevice) -> None:
    batches = iter(DevicePrefetcher(counted([10, OSError("disk")], []), "cuda", lookahead=True))
    assert next(batches) == 10
    with pytest.raises(OSError, match="disk"):
        next(batches)
    assert list(batches) == []


def test_an_error_of_copying_is_met_where_its_batch_would_have_been(
    late: LateDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(source: Tensor) -> Tensor:
        raise RuntimeError("no pinned memory left")

    monkeypatch.setattr(late, "pinned", no_memory)
    batches = iter(DevicePrefetcher([pinned(1), torch.ones(2)], "cuda", lookahead=True))
    next(batches)
    with pytest.raises(RuntimeError, match="no pinned memory left"):
        next(batches)


def test_two_epochs_at_once_do_not_disturb_each_other(late: LateDevice) -> None:
    x = torch.arange(20.0)
    prefetcher = DevicePrefetcher(DataLoader(TensorDataset(x), 3), "cuda", lookahead=True)
    pairs = list(zip(prefetcher, prefetcher, strict=True))
    late.finish()
    for side in range(2):
        assert torch.equal(torch.cat([pair[side][0] for pair in pairs]), x)


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
        "one rank": (OptimalDataLoaderFactory.create_training_loader(data, 2, pin_memory=False), 1),
        "a list": ([1, 2, 3], 1),
    }


@pytest.mark.parametrize("name", loaders())
def test_a_loader_is_asked_early_only_where_nothing_else_can_notice(
    name: str, late: LateDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def begin(batch: Any, cuda: Any) -> BatchCopy:
        started.append(batch)
        return BatchCopy(batch, cuda)

    monkeypatch.setattr(device_prefetch, "BatchCopy", begin)
    loader, expected = loaders()[name]
    next(iter(DevicePrefetcher(loader, "cuda")))
    assert len(started) == expected
    started.clear()
    next(iter(DevicePrefetcher(loader, "cuda", lookahead=True)))
    assert len(started) == 2


# --- with a GPU ---------------------------------------------------------------------------------------------


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_cuda
@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("pin", [False, True])
def test_on_cuda_every_batch_arrives_whole_while_the_device_is_busy(lookahead: bool, pin: bool) -> None:
    buffer = torch.empty(1 << 22, pin_memory=pin)

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


@needs_cuda
@pytest.mark.parametrize("pin", [False, True])
def test_on_cuda_training_is_the_same_as_with_copies_in_the_step(pin: bool) -> None:
    def train(prefetch: bool) -> Any:
        seed_all(0)
        loader = DataLoader(tensor_data(64), 8, shuffle=True, pin_memory=pin)
        batches: Any = DevicePrefetcher(loader, "cuda") if prefetch else loader
        total = torch.zeros((), device="cuda")
        for x, y in batches:
            total = total * 1.5 + (x.to("cuda").sum() * y.to("cuda").sum())
        return total.item(), torch.rand(1).item()

    assert train(True) == train(False)


@needs_cuda
def test_on_cuda_the_loop_does_not_wait_for_the_device() -> None:
    loader = DataLoader(TensorDataset(torch.arange(64.0)), 4)
    prefetcher = DevicePrefetcher(loader, "cuda")
    assert len(list(prefetcher)) == 16  # memory is pinned, streams are made
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 28)  # the training's stream is busy for longer than the loop takes
    busy = torch.cuda.Event()
    busy.record()
    copies = [x for (x,) in prefetcher]
    assert not busy.query()
    assert torch.equal(torch.cat(copies).cpu(), torch.arange(64.0))
