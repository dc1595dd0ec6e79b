"""The mistakes in the source documents' own snippets, each shown not to be made here.

Numbers are those of the requirements. Traps 7 to 10 are about measuring and tested with the monitor; 14 is
about code that must not exist.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, StandardizedSubset, run, same, seed_all, tensor_data
from support import modules_of
from torch.utils.data import DataLoader, Dataset

import chirpid_patch
from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    worker_init_fn,
)

Factory = OptimalDataLoaderFactory
CREATE = [Factory.create_training_loader, Factory.create_validation_loader, Factory.create_test_loader]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("create", CREATE)
def test_trap_01_the_factorys_own_arguments_do_not_reach_the_data_loader(create: Any, optimize: bool) -> None:
    loader = create(
        tensor_data(5), 2, has_augmentation=True, has_standardization=True, num_workers=1, benchmark=False,
        optimize=optimize,
    )  # fmt: skip
    assert sum(len(y) for _, y in loader) == 5


@pytest.mark.parametrize("create", CREATE[1:])
def test_trap_02_validation_and_test_see_every_sample(create: Any) -> None:
    with pytest.warns(UserWarning, match="validation and test read every sample"):
        loader = create(tensor_data(7), 4, drop_last=True)
    assert sum(len(y) for _, y in loader) == 7
    assert Factory.get_optimal_config(100)["drop_last"] is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(len(y) for _, y in create(tensor_data(7), 4)) == 7


def test_trap_03_no_batch_is_dropped_unless_the_call_says_so_and_an_empty_epoch_is_told(caplog: Any) -> None:
    loader = Factory.create_training_loader(tensor_data(3), 4)
    assert [len(y) for _, y in loader] == [3] and not caplog.records
    for data, options in ((tensor_data(3), {}), (tensor_data(30), {"sampler": [1, 2]})):
        caplog.clear()
        loader = Factory.create_training_loader(data, 4, drop_last=True, **options)
        assert [list(loader) for _ in range(2)] == [[], []]
        assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
            "with drop_last=True, an epoch has no batches: choose a smaller batch_size"
        ]
    enough = Factory.create_training_loader(tensor_data(7), 4, drop_last=True)
    assert [len(y) for _, y in enough] == [4]
    assert [len(y) for _, y in Factory.create_training_loader(tensor_data(7), 4)] == [4, 3]


@pytest.mark.parametrize("create", CREATE)
def test_trap_04_worker_arguments_are_no_error_where_the_factory_leaves_workers_out(create: Any) -> None:
    about: dict[str, Any] = {
        "prefetch_factor": 4, "persistent_workers": True, "timeout": 9, "multiprocessing_context": "spawn",
    }  # fmt: skip
    loader = create(tensor_data(5), 2, num_workers=2, **about)
    assert loader.worker_processes == 0
    assert len(list(loader)) == 3
    for name, value in about.items():
        if name != "timeout":  # which PyTorch takes until it iterates
            for workers in ({"num_workers": 0}, {}):
                with pytest.raises(ValueError, match=name):
                    create(tensor_data(5), 2, **{name: value}, **workers)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with an accelerator memory is pinned")
@pytest.mark.parametrize("workers", [0, 1])
def test_trap_05_memory_is_pinned_only_for_an_accelerator(workers: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for create in CREATE:
            loader = create(tensor_data(4), 2, pin_memory=True, num_workers=workers)
            assert loader.pin_memory is True  # what was asked for
            assert len(list(loader)) == 2
        direct = BatchedDataLoader(tensor_data(4), batch_size=2, pin_memory=True, num_workers=workers)
        assert len(list(direct)) == 2
    assert Factory.get_optimal_config(100)["pin_memory"] is False


def test_trap_05_with_an_accelerator_every_batch_is_pinned_for_it(monkeypatch: Any) -> None:
    pinned: list[str | None] = []

    def pin(batch: Any, device: str | None) -> Any:
        pinned.append(device)
        return batch

    monkeypatch.setattr("chirpid_patch.loading.loader.pinning_device", lambda: "cuda")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # what torch 2.6 asks
    monkeypatch.setattr("chirpid_patch.loading.loader.pin_batch", pin)
    assert len(list(Factory.create_training_loader(tensor_data(4), 2, pin_memory=True))) == 2
    assert pinned in (["cuda", "cuda"], [None, None])  # CUDA is None to torch 2.6
    list(Factory.create_training_loader(tensor_data(4), 2, pin_memory=False))
    assert len(pinned) == 2


class Draws(Dataset[Any]):
    """Each sample is one draw from each global generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: Any) -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1, dtype=torch.float64))


def worker_draws(rank: int, monkeypatch: Any, seed: int = 0) -> list[float]:
    """Draws of two workers in two epochs."""
    monkeypatch.setenv("RANK", str(rank))
    torch.manual_seed(seed)
    loader = DataLoader(Draws(), num_workers=2, worker_init_fn=worker_init_fn)
    return [float(draw) for _ in range(2) for sample in loader for draw in sample]


@pytest.mark.slow
@pytest.mark.start_method("fork", "spawn", reason="a fork server's workers have the RANK of the server's start")
def test_trap_06_workers_ranks_and_epochs_draw_differently_and_runs_repeat(monkeypatch: Any) -> None:
    zero, one = worker_draws(0, monkeypatch), worker_draws(1, monkeypatch)
    assert len(set(zero + one)) == 2 * 2 * 8 * 3
    assert worker_draws(0, monkeypatch) == zero
    assert worker_draws(1, monkeypatch) == one
    assert not set(worker_draws(0, monkeypatch, seed=1)) & set(zero)


class Ranks(Dataset[str]):
    """Each sample is ``RANK`` in the process that reads the sample."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> str:
        return os.environ.get("RANK", "none")


@pytest.mark.slow
@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="the system has no fork server")
@pytest.mark.parametrize("make", [DataLoader, BatchedDataLoader])
def test_workers_of_a_fork_server_keep_the_rank_of_its_start_as_pytorch_s_do(make: Any, monkeypatch: Any) -> None:
    loader = make(Ranks(), num_workers=1, multiprocessing_context="forkserver")
    read = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        read += [sample for batch in loader for sample in batch]
    assert len(read) == 2 and read[0] == read[1]


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**63 - 1])
def test_trap_06_every_seed_is_in_range_and_the_worker_number_is_not_added_again(seed: int) -> None:
    def draws(worker_id: int) -> tuple[float, float, float]:
        torch.manual_seed(seed)
        worker_init_fn(worker_id)
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    torch.manual_seed(seed)
    alone = float(torch.rand(1))
    # PyTorch seeded this "worker"; in rank 0 torch keeps that seed, and the id changes nothing.
    assert draws(0) == draws(7)
    assert draws(0)[2] == alone


def test_trap_11_augmented_dataset_has_a_length_copies_deeply_and_builds_nothing_per_sample(
    monkeypatch: Any,
) -> None:
    params: dict[str, Any] = {"spec_augment_params": {"p": 1.0, "mask_value": 5.0}}
    dataset = WorkerSafeAugmentedDataset(tensor_data(6), params)
    params["spec_augment_params"]["mask_value"] = 9.0
    assert len(dataset) == 6
    assert dataset.transforms[0].mask_value == 5.0  # type: ignore[attr-defined]
    built = []
    monkeypatch.setattr(torch.nn.Module, "__init__", lambda self: built.append(self))
    for index in range(6):
        dataset[index]
    list(BatchedDataLoader(dataset, batch_size=2))
    assert built == []


def test_trap_12_allowing_more_workers_does_not_start_them_for_data_in_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: 64)
    for allowed in (1, 4, 12):
        assert Factory.create_training_loader(tensor_data(40), 8, num_workers=allowed).worker_processes == 0


def left_after_waiting() -> list[Any]:
    """Processes that were started and go on; PyTorch's loader ends a process that is slow to end without waiting."""
    for child in multiprocessing.active_children():
        child.join(60)
    return multiprocessing.active_children()


def test_trap_13_finished_folds_keep_no_workers() -> None:
    gc.disable()  # nothing may depend on the garbage collector
    try:
        for _ in range(3):
            loaders = [
                BatchedDataLoader(PairDataset(4), batch_size=2, num_workers=1, persistent_workers=True)
                for _ in range(2)
            ]
            assert sum(len(y) for loader in loaders for _, y in loader) == 8
            assert len(multiprocessing.active_children()) == 2
            del loaders
            assert left_after_waiting() == []
        with BatchedDataLoader(PairDataset(4), num_workers=1, persistent_workers=True) as kept:
            list(kept)
            assert len(multiprocessing.active_children()) == 1
        assert left_after_waiting() == []
    finally:
        gc.enable()


def test_trap_14_no_cache_is_emptied_while_loading() -> None:
    package = Path(chirpid_patch.__file__).parent
    calls = [path.name for path in modules_of(package) if re.search(r"empty_cache\(", path.read_text("utf-8"))]
    # Between trials of a size: never while loading.
    assert sorted(calls) == ["trials.py"]


def test_trap_15_the_optimised_epoch_has_the_originals_samples_and_as_much_augmentation() -> None:
    data = tensor_data(50, (1, 8, 12))
    torch.manual_seed(0)
    dataset = WorkerSafeAugmentedDataset(data, {"mask_value": -1.0, "p": 0.8, "num_freq_masks": 0})
    loader = Factory.create_training_loader(dataset, 8, num_workers=4)
    masked = torch.cat([(x == -1.0).flatten(1).any(1) for _ in range(40) for x, _ in loader])
    assert len(masked) == 40 * len(data)
    # p, times the chance that a width of 0..12 (40 clamped to the axis) is not 0; five standard errors
    expected = 0.8 * 12 / 13
    assert abs(float(masked.float().mean()) - expected) < 5 * (expected * (1 - expected) / len(masked)) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("original", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_trap_16_training_after_loading_continues_as_it_would_have(original: dict[str, Any]) -> None:
    data = tensor_data(11)
    old = StandardizedSubset(data, range(11), 0.5, 0.2)
    new = WorkerSafeStandardizedDataset(data, range(11), torch.tensor(0.5), torch.tensor(0.2))

    def later(train: Any, validate: Any) -> tuple[Any, ...]:
        seed_all(1)
        epochs = [[*train, *validate] for _ in range(3)]
        return epochs, torch.nn.Linear(3, 3).weight.detach(), torch.randperm(11)

    def loaders(dataset: Any, factory: bool) -> tuple[Any, ...]:
        if not factory:
            return (DataLoader(dataset, 4, shuffle=True, **original), DataLoader(dataset, 4, **original))
        return (
            Factory.create_training_loader(dataset, 4, **original),
            Factory.create_validation_loader(dataset, 4, **original),
        )

    assert same(later(*loaders(new, True)), later(*loaders(old, False)))
    before = run(loaders(old, False)[0], epochs=2)[1]
    assert run(loaders(new, True)[0], epochs=2)[1] == before
