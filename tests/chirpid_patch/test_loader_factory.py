"""The factory: what it chooses, what it leaves to the caller, and what it says about it."""

from __future__ import annotations

import inspect
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, same, tensor_data
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    create_loader,
    create_test_loader,
    create_training_loader,
    create_validation_loader,
    usable_cpus,
)
from chirpid_patch.loader_arguments import LoaderArguments
from chirpid_patch.loader_speed.search import LoaderChoice, LoadingTrial
from chirpid_patch.loading.limits import worker_processes

Factory = OptimalDataLoaderFactory
CREATE = [Factory.create_training_loader, Factory.create_validation_loader, Factory.create_test_loader]


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: 64)


@pytest.mark.parametrize(
    ("size", "work", "workers", "prefetch"),
    [(5000, True, 8, 4), (5000, False, 12, 6), (999, True, 4, 4), (999, False, 4, 6), (20_000, True, 10, 4),
     (20_000, False, 14, 6)],
)  # fmt: skip
@pytest.mark.usefixtures("many_cpus")
def test_config_follows_the_guide_where_there_are_cpus(size: int, work: bool, workers: int, prefetch: int) -> None:
    for argument in ("has_augmentation", "has_standardization"):
        config = Factory.get_optimal_config(size, **{argument: work})
        assert (config["num_workers"], config["prefetch_factor"]) == (workers, prefetch)
        assert config["persistent_workers"] is True and config["drop_last"] is False


@pytest.mark.parametrize(("cpus", "workers"), [(1, 0), (2, 1), (5, 4), (9, 8), (33, 12)])
def test_config_leaves_a_cpu_to_the_training(cpus: int, workers: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: cpus)
    config = Factory.get_optimal_config(5000)
    assert config["num_workers"] == workers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if workers <= usable_cpus():
            DataLoader(PairDataset(3), **config)


@settings(max_examples=40)
@given(size=st.integers(0, 10**6), work=st.booleans())
def test_config_is_legal_and_bounded_on_this_machine(size: int, work: bool) -> None:
    config = Factory.get_optimal_config(size, has_augmentation=work)
    assert 0 <= config["num_workers"] < usable_cpus() or config["num_workers"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(PairDataset(3), **config)


@pytest.mark.parametrize("create", CREATE)
def test_no_process_is_started_unless_asked_for(create: Any) -> None:
    for dataset in (PairDataset(5), tensor_data(5)):
        loader = create(dataset, 2)
        assert isinstance(loader, BatchedDataLoader)
        assert loader.num_workers == 0


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(4))


#: Of docs/factory.md: the arguments of each line, with those of the lines after it as far as they go together.
RULES: list[tuple[Any, dict[str, Any], str]] = [
    (tensor_data(8), {"optimize": False, "num_workers": 2},
     "PyTorch's own loading (optimize=False): 2 worker processes"),
    (tensor_data(8), {"device": "cpu", "resident_share": 0.5},
     "on cpu: 0.8 KiB of samples are stored on the device, and batches are built from these samples"),
    (tensor_data(8), {"tune": True, "num_workers": 3, "thread_safe": True},
     "4 prefetch threads: measured 9 samples/s, and 5 samples/s without threads and workers"),
    (PairDataset(8), {"thread_safe": True}, "loading in this process: no workers were requested"),
    (_Stream(), {"num_workers": 3, "thread_safe": True},
     "3 worker processes: another number of workers would change the samples of an iterable dataset"),
    (tensor_data(8), {"num_workers": 3, "thread_safe": True},
     "loading in this process: the samples are in memory, so each batch is gathered at once"),
    (PairDataset(8), {"num_workers": 3, "thread_safe": True},
     "loading in this process: threads load ahead, because the caller declares the dataset thread-safe"),
    (PairDataset(8), {"num_workers": 3}, "3 worker processes: as many workers as requested"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("dataset", "options", "decision"), RULES, ids=[decision for *_, decision in RULES])
def test_the_first_rule_that_fits_decides(
    dataset: Any, options: dict[str, Any], decision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = LoaderChoice(0, 4, (LoadingTrial(0, 0, 5.0, 0.1), LoadingTrial(0, 4, 9.0, 0.1)))
    monkeypatch.setattr("chirpid_patch.factory.choose_loading_mode", lambda *args, **given: measured)
    monkeypatch.setenv("CHIRPID_PROFILE", str(tmp_path / "profile.json"))
    loader: Any = Factory.create_training_loader(dataset, 2, **options)
    assert loader.decision == decision


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_allowed_workers_are_used_where_samples_cost_work_and_not_for_data_in_memory() -> None:
    def chosen(dataset: Any, **options: Any) -> Any:
        return worker_processes(Factory.create_training_loader(dataset, 2, num_workers=3, **options))

    data = tensor_data(8)
    assert chosen(PairDataset(8)) == 3
    assert chosen(data) == chosen(WorkerSafeAugmentedDataset(data)) == 0
    assert chosen(WorkerSafeSequenceDataset([data[0]])) == 0
    assert chosen(data, collate_fn=list) == 3
    assert chosen(WorkerSafeAugmentedDataset(data, transforms=[torch.relu])) == 3
    assert chosen(WorkerSafeAugmentedDataset(PairDataset(8))) == 3


@pytest.mark.parametrize("create", CREATE)
def test_every_data_loader_argument_is_honoured(create: Any) -> None:
    data = tensor_data(9)
    generator = torch.Generator().manual_seed(0)
    sampler = WeightedRandomSampler([1.0] * 9, 6, generator=generator)
    given: dict[str, Any] = {
        "batch_size": 4, "sampler": sampler, "num_workers": 2, "collate_fn": list, "timeout": 30,
        "worker_init_fn": print, "multiprocessing_context": "spawn", "generator": generator,
        "prefetch_factor": 5, "persistent_workers": True,
    }  # fmt: skip
    loader = create(data, **given)
    for name, value in given.items():
        actual = getattr(loader, name)
        if name == "multiprocessing_context":
            actual = actual.get_start_method()
        assert actual == value, name
    batched = create(data, batch_sampler=[[0, 3], [1]])
    assert [len(y) for _, y in batched] == [2, 1]
    assert create(data, batch_size=None).batch_size is None
    with pytest.raises(TypeError, match="num_worker"):
        create(data, 4, num_worker=2)


def test_single_items_that_workers_sent_are_parts_of_the_dataset_where_pytorchs_are() -> None:
    loaders: dict[str, DataLoader[Any]] = {
        "PyTorch's": DataLoader(tensor_data(4), None, num_workers=1),
        "ours": Factory.create_training_loader(tensor_data(4), None, shuffle=False, num_workers=1),
    }
    for loader in loaders.values():
        for x, _ in loader:
            x.zero_()
    assert loaders["ours"].num_workers == 1
    # A forked worker has a copy; any other start method shares the dataset's tensors with the worker.
    assert torch.equal(loaders["ours"].dataset.tensors[0], loaders["PyTorch's"].dataset.tensors[0])  # type: ignore[attr-defined]


def test_shuffling_is_the_default_for_training_only() -> None:
    data = tensor_data(6)
    kinds = [type(create(data).sampler) for create in CREATE]
    assert kinds == [RandomSampler, SequentialSampler, SequentialSampler]
    for create in CREATE:
        for shuffle, kind in ((True, RandomSampler), (False, SequentialSampler), (None, SequentialSampler)):
            assert type(create(data, shuffle=shuffle).sampler) is kind
    assert Factory.create_training_loader(data, sampler=SequentialSampler(data)).batch_size == 1


def test_the_choice_is_logged_for_who_debugs_and_kept(caplog: Any) -> None:
    with caplog.at_level(logging.INFO, logger="chirpid_patch"):
        Factory.create_training_loader(tensor_data(4), 2)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger="chirpid_patch"):
        loader = Factory.create_training_loader(tensor_data(5), 2, num_workers=4)
    assert len(caplog.records) == 1
    assert loader.decision in caplog.text  # type: ignore[attr-defined]
    assert "in memory" in caplog.text and "batch size 2" in caplog.text


@pytest.mark.parametrize("optimize", [True, False])
def test_benchmark_logs_what_each_epoch_waited(optimize: bool, caplog: Any) -> None:
    loader = Factory.create_validation_loader(tensor_data(5), 2, benchmark=True, optimize=optimize)
    with caplog.at_level(logging.INFO, logger="chirpid_patch"):
        assert len(list(loader)) == 3
        caplog.clear()
        for _ in loader:
            pass
    assert len(caplog.records) == 1
    assert "3 batches, 5 samples" in caplog.text and "p99" in caplog.text
    assert len(iter(loader)) == 3


def test_benchmark_counts_samples_in_any_container(caplog: Any) -> None:
    def as_dict(samples: Any) -> Any:
        return {"name": "birds", "x": torch.stack([x for x, _ in samples])}

    loader = Factory.create_test_loader(tensor_data(7), 3, benchmark=True, collate_fn=as_dict)
    with caplog.at_level(logging.INFO, logger="chirpid_patch"):
        list(loader)
    assert "3 batches, 7 samples" in caplog.text


def test_arguments_of_a_dataloader_are_understood_at_run_time() -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 3, "pin_memory": True}
    loader = Factory.create_loader(tensor_data(10), **options)
    assert isinstance(loader.sampler, RandomSampler) and worker_processes(loader) == 0 and len(loader) == 3
    plain = Factory.create_loader(tensor_data(10), 4, False, None, None, 2)
    assert isinstance(plain.sampler, SequentialSampler) and worker_processes(plain) == 0


@pytest.mark.parametrize("workers", [None, "2", 1.5])
@pytest.mark.parametrize("dataset", [tensor_data(6), PairDataset(6)], ids=["in memory", "read"])
def test_a_number_of_workers_that_is_none_is_refused_as_by_pytorch(dataset: Any, workers: Any) -> None:
    def refusal(make: Any) -> tuple[str, list[int]]:
        torch.manual_seed(0)
        with pytest.raises(TypeError) as refused:
            list(make(dataset, batch_size=2, num_workers=workers))
        return str(refused.value), torch.get_rng_state().tolist()

    assert refusal(Factory.create_loader) == refusal(DataLoader)


@pytest.mark.parametrize("name", ["uint8", "uint16", "uint32", "bool", "bfloat16", "complex64"])
def test_rows_of_every_dtype_come_as_pytorch_gives_them(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("this PyTorch has no such numbers")
    rows = torch.arange(12).reshape(6, 2).to(dtype)
    whole = TensorDataset(rows, rows)
    for dataset in (whole, Subset(whole, [3, 1, 5]), WorkerSafeArrayDataset(rows, rows)):
        for workers in (0, 1):
            loader = Factory.create_loader(dataset, batch_size=2, num_workers=workers)
            assert same(list(loader), list(DataLoader(dataset, 2)))


@pytest.mark.parametrize("name", ["drop_last", "timeout"])
def test_none_is_refused_where_pytorch_refuses_it(name: str) -> None:
    refused = []
    for make in (DataLoader, create_loader, create_training_loader):
        with pytest.raises((TypeError, ValueError)) as error:
            make(tensor_data(4), 2, **{name: None})
        refused.append((error.type, str(error.value)))
    assert len(set(refused)) == 1


@pytest.mark.parametrize("name", ["nope", "most_workers", "in_process"])
@pytest.mark.parametrize("make", [create_training_loader, create_validation_loader, create_test_loader])
def test_an_unknown_argument_is_named(make: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument of a loader: {name}"):
        make(tensor_data(4), 2, **{name: 1})


@pytest.mark.parametrize("make", [create_loader, create_training_loader, create_validation_loader, create_test_loader])
def test_help_lists_every_argument(make: Any) -> None:
    arguments = inspect.signature(make).parameters
    assert set(arguments) == {"dataset", "batch_size", "shuffle", *LoaderArguments.__annotations__}
    assert all(one.kind is not one.VAR_KEYWORD for one in arguments.values())
    assert str(arguments["shuffle"]).endswith("= NOT_GIVEN") is (make is create_training_loader)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tune": True, "adjust_workers": True}, "adjust_workers and tune"),
        ({"tune_seconds": 1.0}, "tune_seconds"),
        ({"tune": 5}, "tune must be"),
        ({"distributed": True, "world_size": -3}, "world_size must be 0 or more"),
        ({"distributed": True, "world_size": 2, "rank": "1"}, "rank must be a whole number"),
        ({"tune_step": print}, "tune_step"),
        ({"adjust_workers": True, "distributed": True, "rank": 0, "world_size": 2}, "adjust_workers and distributed"),
    ],
    ids=str,
)
def test_arguments_that_choose_the_same_or_nothing_are_refused(options: dict[str, Any], names: str) -> None:
    with pytest.raises((TypeError, ValueError), match=names):
        create_training_loader(tensor_data(4), 2, **options)
