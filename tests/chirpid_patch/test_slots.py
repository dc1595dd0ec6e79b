"""Batches handed over in shared memory that is lent again: the same batches, and nobody's are overwritten."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from originals import same
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from chirpid_patch import BatchedDataLoader, WorkerSafeAugmentedDataset, fetch_batch
from chirpid_patch.loading.slots import PackedBatch

ROW = (1, 96, 96)  # a batch of 4 is larger than what is sent by value


def tensors(n: int = 26) -> TensorDataset:
    return TensorDataset(torch.rand(n, *ROW, generator=torch.Generator().manual_seed(1)), torch.arange(n))


class Samples(Dataset[Any]):
    """A user's dataset over ``tensors``, each sample made by ``make(x, y)``."""

    def __init__(self, make: Any, n: int = 26) -> None:
        self.make = make
        self.base = tensors(n)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        return self.make(*self.base[index])


class Named(NamedTuple):
    x: Any
    y: Any


def pair(x: Any, y: Any) -> Any:
    return x * 2, y


def two_large(x: Any, y: Any) -> Any:
    return {"image": x, "mask": (x > 0.5), "index": y, "name": f"sample {int(y)}"}


def named(x: Any, y: Any) -> Any:
    return Named(x, [y, float(y)])


def halves(x: Any, y: Any) -> Any:
    return x.to(torch.bfloat16), y.to(torch.int8), x[0, 0, 0]


def strided(x: Any, y: Any) -> Any:
    return x.transpose(1, 2), y


def numbers(x: Any, y: Any) -> Any:
    return x.numpy(), np.float32(y)


def one(x: Any, y: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "make", [pair, two_large, named, halves, strided, numbers, one], ids=lambda make: make.__name__
)
def test_batches_are_those_of_the_plain_loader(make: Any) -> None:
    plain = list(DataLoader(Samples(make), batch_size=4))
    loader = BatchedDataLoader(Samples(make), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert same_batches(list(loader), plain)
    loader.shutdown()


def same_batches(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return type(left) is type(right) and same_batches(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same_batches, left, right))
    return same(left, right)


def sent_packed(loader: BatchedDataLoader) -> list[bool]:
    """For each batch of an epoch, whether its worker sent it through slots."""
    seen = []
    receive = PackedBatch.unpack

    def noting(batch: PackedBatch) -> Any:
        seen.append(True)
        return receive(batch)

    PackedBatch.unpack = noting  # type: ignore[method-assign]
    try:
        for batch in loader:
            del batch
    finally:
        PackedBatch.unpack = receive  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize(
    "dataset",
    [tensors(60), Samples(pair, 60), WorkerSafeAugmentedDataset(tensors(60))],
    ids=["ours", "user", "augmented"],
)
def test_slots_are_used_once_the_size_of_a_batch_is_known(dataset: Any) -> None:
    loader = BatchedDataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    list(loader)
    assert len(sent_packed(loader)) == 15
    loader.shutdown()


def test_batches_that_are_kept_are_never_overwritten() -> None:
    plain = [x for x, _ in DataLoader(tensors(200), batch_size=4)]
    loader = BatchedDataLoader(tensors(200), batch_size=4, num_workers=2, persistent_workers=True)
    kept: list[Any] = []
    for _ in range(3):
        kept += [x for x, _ in loader]
    assert all(torch.equal(x, plain[number % 50]) for number, x in enumerate(kept))
    loader.shutdown()
    del loader
    gc.collect()
    assert all(torch.equal(x, plain[number % 50]) for number, x in enumerate(kept))


@pytest.mark.parametrize(
    "keep", [lambda x: x[1:2], lambda x: x.numpy(), lambda x: x.untyped_storage()], ids=["view", "array", "storage"]
)
def test_anything_over_the_memory_of_a_batch_keeps_it(keep: Any) -> None:
    loader = BatchedDataLoader(tensors(120), batch_size=4, num_workers=2, persistent_workers=True)
    list(loader)
    kept = []
    for x, _ in loader:
        kept.append((keep(x), bytes(memoryview(np.asarray(keep(x.clone()))) if hasattr(keep(x), "shape") else b"")))
        del x
    list(loader)
    for view, content in kept:
        if content:
            assert bytes(memoryview(np.ascontiguousarray(view))) == content
    addresses = [view.data_ptr() if hasattr(view, "data_ptr") else view.ctypes.data for view, _ in kept]
    assert len(set(addresses)) == len(addresses)
    loader.shutdown()


def test_gradients_of_a_batch_keep_it() -> None:
    loader = BatchedDataLoader(tensors(60), batch_size=4, num_workers=2, persistent_workers=True)
    list(loader)
    weight = torch.ones(1, requires_grad=True)
    expected, losses = 0.0, []
    for x, _ in loader:
        losses.append((weight * x).square().sum())
        expected += float(2 * x.square().sum())
        del x
    torch.stack(losses).sum().backward()
    assert weight.grad is not None and float(weight.grad) == pytest.approx(expected)
    loader.shutdown()


def shared(samples: Any) -> Any:
    """A user's collate function whose tensors share memory."""
    x, y = default_collate(samples)
    return x, x, x[:2], y


def test_tensors_that_share_memory_keep_sharing_it() -> None:
    loader = BatchedDataLoader(tensors(60), batch_size=4, num_workers=2, collate_fn=shared, persistent_workers=True)
    for _ in range(2):
        for x, again, part, _ in loader:
            x.zero_()
            assert not again.any() and not part.any()
    loader.shutdown()


class Caching(Samples):
    """A user's dataset that keeps what this package gathered for it."""

    kept: list[Any]

    def __getitem__(self, index: int) -> Any:
        batch = fetch_batch(self.base, [index] * 4)
        assert batch is not None
        self.__dict__.setdefault("kept", []).append((batch[0], batch[0].clone()))
        assert all(torch.equal(kept, before) for kept, before in self.kept)
        return batch[0].sum(), index


def test_what_a_users_dataset_gathers_and_keeps_is_never_overwritten() -> None:
    assert len(list(BatchedDataLoader(Caching(pair, 60), batch_size=4, num_workers=2))) == 15


def test_a_saved_label_tensor_is_small() -> None:
    for _, y in BatchedDataLoader(tensors(60), batch_size=4, num_workers=2):
        file = io.BytesIO()
        torch.save(y, file)
        assert len(file.getvalue()) < 4096


def test_batches_of_changing_size() -> None:
    sizes = [[0], [1, 2, 3, 4], list(range(20)), [5], list(range(9))] * 4
    loader = BatchedDataLoader(tensors(), batch_sampler=sizes, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert [len(x) for x, _ in loader] == [len(batch) for batch in sizes]
        assert all(
            same(list(batch), list(fetch_batch(tensors(), rows) or ()))
            for batch, rows in zip(loader, sizes, strict=True)
        )
    loader.shutdown()


def test_a_broken_epoch_gives_its_slots_back() -> None:
    loader = BatchedDataLoader(tensors(60), batch_size=4, num_workers=2, persistent_workers=True)
    list(loader)
    for _ in range(20):
        next(iter(loader))
    assert len(sent_packed(loader)) == 15
    loader.shutdown()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm and /proc")
def test_nothing_is_left_in_shared_memory() -> None:
    def left() -> tuple[set[str], int]:
        gc.collect()
        return {path.name for path in Path("/dev/shm").iterdir()}, len(list(Path("/proc/self/fd").iterdir()))

    def run() -> None:
        loader = BatchedDataLoader(tensors(60), batch_size=4, num_workers=2, persistent_workers=True)
        for _ in range(3):
            list(loader)

    run()
    before = left()
    run()
    after = left()
    assert after[0] <= before[0] and after[1] <= before[1]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_started_afresh_use_slots_too(method: str) -> None:
    if method not in torch.multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    loader = BatchedDataLoader(
        tensors(40), batch_size=4, num_workers=1, persistent_workers=True, multiprocessing_context=method
    )
    plain = list(DataLoader(tensors(40), batch_size=4))
    assert same_batches(list(loader), plain) and same_batches(list(loader), plain)
    assert len(sent_packed(loader)) == 10
    loader.shutdown()


def test_full_shared_memory_is_made_do_with(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    class RoomForTwo:
        made = 0

        @classmethod
        def _new_shared(cls, size: int) -> Any:
            if cls.made == 2:
                refused.append(size)
                raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left (28)")
            cls.made += 1
            return torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]

    monkeypatch.setattr("chirpid_patch.loading.slots.UntypedStorage", RoomForTwo)
    loader = BatchedDataLoader(tensors(60), batch_size=4, num_workers=2, persistent_workers=True)
    plain = list(DataLoader(tensors(60), batch_size=4))
    assert all(same_batches(list(loader), plain) for _ in range(3))
    assert len(refused) == 1 and not loader.lost_workers
    loader.shutdown()
