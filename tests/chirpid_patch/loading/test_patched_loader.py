"""Other code has changed or replaced PyTorch's ``DataLoader``: the factory calls what the program would call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import FunctionType
from typing import Any

import pytest
from originals import tensor_data
from torch import Tensor
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory

Factory = OptimalDataLoaderFactory
Calls = list[tuple[int, list[str]]]

REPLACED = """
import torch.utils.data
from torch.utils.data import dataloader

class Loader:
    def __init__(self, *args, **options):
        self.given = args, options

{replaced}
from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory as Factory

assert Factory.create_loader([1], 2, True).given == (([1], 2, True), {{}})
assert Factory.create_loader([1], batch_size=2, optimize=True).given == (([1],), {{"batch_size": 2}})
assert Factory.create_training_loader([1], shuffle=True).given == (([1],), {{"shuffle": True}})
assert Factory.create_test_loader(dataset=[1]).given == ((), {{"dataset": [1]}})
assert [batch.tolist() for batch in BatchedDataLoader([1, 2], 2)] == [[1, 2]]
"""


@pytest.mark.parametrize(
    "replaced",
    [
        "torch.utils.data.DataLoader = Loader",
        "torch.utils.data.DataLoader = lambda *args, **options: Loader(*args, **options)",
        "torch.utils.data.DataLoader = dataloader.DataLoader = Loader",
    ],
    ids=["class", "function", "both-modules"],
)
def test_a_class_that_replaces_dataloader_is_called(replaced: str) -> None:
    subprocess.run([sys.executable, "-c", REPLACED.format(replaced=replaced)], check=True)


@contextmanager
def wrapped_init(kind: type[Any], namespace: dict[str, Any] | None = None) -> Iterator[Calls]:
    """Wrap ``kind.__init__``, and yield the list of its calls: the number of arguments and their names."""
    calls: Calls = []
    original = kind.__init__

    def init(self: Any, *args: Any, calls: Calls = calls, original: Any = original, **options: Any) -> None:
        calls.append((len(args), sorted(options)))
        original(self, *args, **options)

    new = FunctionType(init.__code__, {**globals(), **(namespace or {})})
    new.__kwdefaults__ = init.__kwdefaults__
    kind.__init__ = new
    try:
        yield calls
    finally:
        kind.__init__ = original


CALLS = [
    (partial(Factory.create_loader, batch_size=2), (1, ["batch_size"])),
    (partial(Factory.create_loader, optimize=False, benchmark=False), (1, [])),
    (partial(Factory.create_training_loader, shuffle=True), (1, ["shuffle"])),
    (partial(Factory.create_training_loader, sampler=[0]), (1, ["sampler"])),
    (Factory.create_validation_loader, (1, [])),
    (partial(Factory.create_test_loader, drop_last=False), (1, ["drop_last"])),
]


@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize(("create", "call"), CALLS)
def test_a_wrapped_init_gets_the_arguments_of_the_call(
    kind: type[Any], create: Callable[..., Any], call: tuple[int, list[str]]
) -> None:
    with wrapped_init(kind) as calls:
        loader = create(tensor_data(3))
    assert calls == [call] and type(loader) is kind
    assert type(create(tensor_data(3), optimize=True)) is BatchedDataLoader


@pytest.mark.parametrize("name", ["__iter__", "_get_iterator"])
def test_an_iterator_that_is_replaced_later_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Factory.create_loader(tensor_data(3))
    monkeypatch.setattr(DataLoader, name, lambda self: iter(["other"]))
    assert list(loader) == ["other"]


class NotComparable:
    """A method of user code that raises an error if it is compared."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else partial(self.method, owner)

    def __call__(self, *arguments: Any) -> Any:
        return self.method(*arguments)


def test_a_method_of_other_code_is_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    method: Any = NotComparable(_SingleProcessDataLoaderIter._next_data)
    monkeypatch.setattr(_SingleProcessDataLoaderIter, "_next_data", method)
    assert [batch.tolist() for batch in Factory.create_loader([1, 2, 3], 2)] == [[1, 2], [3]]


@pytest.mark.parametrize("name", ["__next__", "_next_data"])
def test_a_method_of_an_iterator_that_is_replaced_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count()
    loader = Factory.create_loader(tensor_data(3))
    original = getattr(_SingleProcessDataLoaderIter, name)
    monkeypatch.setattr(_SingleProcessDataLoaderIter, name, lambda self: (next(calls), original(self))[1])
    assert len(list(loader)) == 3 and next(calls) == 4


def test_a_get_iterator_of_one_loader_is_called() -> None:
    loader = Factory.create_loader(tensor_data(3))
    vars(loader)["_get_iterator"] = lambda: iter(["other"])
    assert list(loader) == ["other"]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_class_that_is_replaced_is_used(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    loader = Factory.create_loader(tensor_data(3), num_workers=workers)
    monkeypatch.setattr(dataloader, name, type("Iterator", (getattr(dataloader, name),), {"__module__": __name__}))
    assert type(iter(loader)).__name__ == "Iterator"
    monkeypatch.undo()
    assert type(iter(loader)).__name__ != "Iterator"


def test_a_fetcher_that_is_replaced_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fetcher(fetch._MapDatasetFetcher):
        def fetch(self, indices: Any) -> Any:
            return indices

    loader = Factory.create_loader(tensor_data(3), batch_size=2)
    with monkeypatch.context() as patches:
        patches.setattr(fetch, "_MapDatasetFetcher", Fetcher)
        assert list(loader) == [[0, 1], [2]]
    with monkeypatch.context() as patches:
        patches.setattr(fetch._MapDatasetFetcher, "fetch", Fetcher.fetch)
        assert list(loader) == [[0, 1], [2]]
    assert all(isinstance(part, Tensor) for part in next(iter(loader)))


@pytest.mark.parametrize(
    "create",
    [
        Factory.create_training_loader,
        partial(Factory.create_loader, tune=True, tune_seconds=0),
        partial(Factory.create_loader, prefetch_threads=0),
    ],
)
def test_a_call_that_dataloader_cannot_take_still_builds_our_loader(create: Callable[..., Any]) -> None:
    with wrapped_init(DataLoader):
        assert type(create(tensor_data(3))) is BatchedDataLoader


def test_a_framework_may_wrap_the_init() -> None:
    with wrapped_init(DataLoader, {"__name__": "lightning.fabric.utilities.data"}) as calls:
        assert type(Factory.create_loader(tensor_data(3))) is BatchedDataLoader
    assert calls


def test_lightning_may_record_the_arguments() -> None:
    data = pytest.importorskip("lightning.fabric.utilities.data")
    with data._replace_dunder_methods(DataLoader, "dataset"):
        loader = Factory.create_loader(tensor_data(3))
    assert type(loader) is BatchedDataLoader and vars(loader)["__pl_saved_kwargs"]["batch_size"] == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("__iter__", lambda self: iter(["other"])),
        ("__len__", len),
        ("collect", classmethod(lambda cls: [])),
        ("dataset_name", property(lambda self: "data")),
        ("device", "cpu"),
    ],
)
def test_any_changed_attribute_counts(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, name, value, raising=False)
    assert type(Factory.create_loader(tensor_data(3))) is DataLoader
