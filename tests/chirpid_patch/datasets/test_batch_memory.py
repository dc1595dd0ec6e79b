"""Batch memory is used again only when nobody can see it any more."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from chirpid_patch import OptimalDataLoaderFactory
from chirpid_patch.datasets.batch_memory import BatchMemoryPool, allocate_batch
from chirpid_patch.datasets.gather import fetch_batch

SHAPE = (16, 1, 150, 150)  # 1.4 MB


def taken() -> torch.Tensor:
    """A block, filled."""
    return allocate_batch(SHAPE, torch.float32).fill_(1.0)


def test_memory_nobody_refers_to_is_used_again() -> None:
    first = taken().data_ptr()
    assert taken().data_ptr() == first


KEEPERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the tensor": lambda x: x,
    "a view": lambda x: x[3:5, :, 7],
    "a transposed view": lambda x: x.transpose(2, 3),
    "a detached alias": lambda x: x.detach(),
    "a NumPy array": lambda x: x.numpy()[2],
    "a memory view": lambda x: memoryview(x.numpy()),
    "its storage": lambda x: x.untyped_storage(),
    "its typed storage": lambda x: x.storage(),
    "a DLPack capsule": lambda x: torch.utils.dlpack.to_dlpack(x),
    "an autograd graph": lambda x: (torch.ones((), requires_grad=True) * x).sum(),
    "a parameter": lambda x: torch.nn.Parameter(x),
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("keeper", KEEPERS)
def test_memory_somebody_can_see_is_left_alone(keeper: str) -> None:
    tensor = taken()
    place = tensor.data_ptr()
    kept = KEEPERS[keeper](tensor)
    del tensor
    gc.collect()
    others = [taken() for _ in range(6)]
    assert place not in {other.data_ptr() for other in others}
    del kept


def test_memory_that_went_to_other_processes_is_never_used_again() -> None:
    tensor = taken().share_memory_()
    place = tensor.data_ptr()
    del tensor
    assert all(taken().data_ptr() != place for _ in range(3))


def test_memory_comes_back_in_whatever_thread_it_dies_and_only_so_much_is_kept() -> None:
    buffers = BatchMemoryPool()
    lent = [buffers.lend(1 << 24) for _ in range(20)]
    thread = threading.Thread(target=lent.clear)
    thread.start()
    thread.join()
    assert buffers.kept_bytes == 1 << 28
    small = buffers.lend(1 << 20)
    assert small.nbytes == 1 << 20 and buffers.kept_bytes == 1 << 28, "not out of a block many times as large"


def test_memory_comes_back_from_a_cycle_while_other_memory_is_lent() -> None:
    gc.disable()
    try:
        places = set()
        for _ in range(50):
            holder: dict[str, Any] = {"x": taken()}
            holder["self"] = holder
            places.add(holder["x"].data_ptr())
            del holder
            gc.set_threshold(1, 1, 1)  # the collector runs within the allocations to come
            gc.enable()
            taken()
            gc.disable()
        assert len(places) < 50
    finally:
        gc.set_threshold(700, 10, 10)
        gc.enable()


def test_a_block_is_a_tensor_of_its_own() -> None:
    tensor = taken()
    assert tensor._base is None and tensor.is_contiguous() and tensor.shape == SHAPE and tensor.is_leaf
    before = tensor._version
    other = taken()
    other.add_(1)
    assert tensor._version == before
    with torch.inference_mode():
        assert allocate_batch(SHAPE, torch.float32).is_inference()
    again = allocate_batch(SHAPE, torch.float32).fill_(2.0).requires_grad_()
    again.square().sum().backward()
    assert again.grad is not None and bool((again.grad == 4).all())


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (1, 2, 3), (7, 300, 301)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    tensor = allocate_batch(shape, torch.uint8)
    assert tensor.shape == shape and tensor.stride() == torch.empty(shape).stride()


def test_batches_kept_together_differ_in_memory() -> None:
    data = TensorDataset(torch.arange(64.0).reshape(-1, 1, 1).expand(-1, 200, 200).contiguous(), torch.arange(64))
    loader = OptimalDataLoaderFactory.create_validation_loader(data, batch_size=16)
    for _ in range(3):
        batches = list(loader)
        for x, y in batches:
            assert torch.equal(x[:, 0, 0], y.float())
    first, second = zip(loader, loader, strict=True), zip(loader, loader, strict=True)
    assert all(torch.equal(a[0], b[0]) for (a, b), _ in zip(first, second, strict=True))


def test_threads_never_get_the_same_block() -> None:
    data = TensorDataset(torch.arange(64.0).reshape(-1, 1, 1).expand(-1, 150, 150).contiguous(), torch.arange(64))
    wrong: list[int] = []

    def load(start: int) -> None:
        for _ in range(60):
            indices = [(start + step) % 64 for step in range(16)]
            batch = fetch_batch(data, indices)
            assert batch is not None
            if batch[0][:, 149, 149].tolist() != [float(i) for i in indices]:
                wrong.append(start)

    threads = [threading.Thread(target=load, args=(start,)) for start in (0, 16, 32, 48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


_FAULTS = """
import resource, torch
from chirpid_patch import keep_freed_memory

def faults():
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        made = [torch.ones(3 << 20) for _ in range(2)] + [torch.ones(1 << 19) for _ in range(8)]  # 40 MiB a step
        del made
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun

torch.set_num_threads(1)
faults()
alone = faults()
keep_freed_memory()
faults()
faults()  # the heap may still grow by a tensor in the first steps
print(alone, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory by other rules")
def test_what_a_step_frees_is_there_for_the_next_one_unless_the_user_set_how_much_is_kept() -> None:
    def measured(**settings: str) -> tuple[int, int]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | settings
        ran = subprocess.run(
            [sys.executable, "-c", _FAULTS], env=environment, check=True, capture_output=True, text=True
        )
        alone, kept = map(int, ran.stdout.split())
        return alone, kept

    # A process where something small lies above what is freed keeps it without being taught, and shows nothing.
    alone, kept = next((found for _ in range(8) if (found := measured())[0] > 10_000), (0, 0))
    if not alone:
        pytest.skip("this C library keeps what a step frees by itself")
    assert kept < 100
    assert any(measured(MALLOC_TRIM_THRESHOLD_="1000000")[1] > 10_000 for _ in range(4))
