"""The loader class to build on: what old callers did with such loaders works, and is what PyTorch's loader gives."""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from originals import PairDataset, same, seed_all
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from chirpid_patch.recipes.wrapped_loader import REMOVED, WrappedDataLoader

NOTES = Path(__file__).parents[3] / "docs" / "migration-notes.md"
N, BATCH = 20, 4


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(loader: Any) -> list[int]:
    """The samples of an epoch, in the order they came."""
    return [int(y) for batch in loader for y in batch[1]]


def alike(left: Any, right: Any) -> bool:
    """Equal to the last bit, dictionaries included."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    return same(left, right)


class Crops(Dataset[dict[str, Any]]):
    """A dataset whose samples are dictionaries, and that knows how it is to be sampled."""

    def __init__(self, length: int = N) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"raw": torch.full((1, 2, 2), float(index)), "meta": {"index": index, "file": f"{index}.npy"}}

    @property
    def sample_weights(self) -> Tensor:
        return torch.arange(self.length) + 0.1


class SamplingCrops(Crops):
    """As in older projects: the dataset makes the sampler."""

    def get_weighted_sampler(self, batch_size: int = 1, rng: torch.Generator | None = None) -> Sampler[int]:
        return WeightedRandomSampler([0.0] * (self.length - 1) + [1.0], 3 * batch_size, generator=rng)


WEIGHTS = [0.1 * (index + 1) for index in range(N)]
CHOSEN = [17, 3, 3, 8, 0]


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        ({}, lambda d, g: {"shuffle": True}),
        ({"is_train": False}, lambda d, g: {}),
        ({"shuffle": False}, lambda d, g: {}),
        ({"drop_last": True, "batch_size": 3}, lambda d, g: {"shuffle": True, "drop_last": True, "batch_size": 3}),
        ({"weighted_sampler": WEIGHTS}, lambda d, g: {"sampler": WeightedRandomSampler(WEIGHTS, N, generator=g)}),
        (
            {"weighted_sampler": WEIGHTS, "iterations_per_epoch": 2},
            lambda d, g: {"sampler": WeightedRandomSampler(WEIGHTS, 2 * BATCH, generator=g)},
        ),
        ({"iterations_per_epoch": 9}, lambda d, g: {"sampler": RandomSampler(d, num_samples=9 * BATCH, generator=g)}),
        ({"indices": CHOSEN}, lambda d, g: {"sampler": SubsetRandomSampler(CHOSEN, generator=g)}),
        ({"indices": torch.tensor(CHOSEN), "is_train": False}, lambda d, g: {"sampler": CHOSEN}),
        ({"sampler": SequentialSampler(range(7))}, lambda d, g: {"sampler": SequentialSampler(range(7))}),
        (
            {"batch_sampler": BatchSampler(SequentialSampler(range(9)), 5, False), "batch_size": 1},
            lambda d, g: {"batch_sampler": BatchSampler(SequentialSampler(range(9)), 5, False), "batch_size": 1},
        ),
    ],
    ids=lambda one: "+".join(one) or "nothing" if isinstance(one, dict) else "",
)
def test_every_sampling_gives_the_batches_of_pytorchs_loader(
    ours: dict[str, Any], plain: Callable[[Any, torch.Generator], dict[str, Any]]
) -> None:
    dataset = PairDataset(N)
    seed_all(3)
    rng = generator()
    loader = WrappedDataLoader(dataset, **{"batch_size": BATCH, "rng": rng, "device": "cpu", **ours})
    found = [list(loader) for _ in range(2)], torch.get_rng_state(), rng.get_state()
    seed_all(3)
    rng = generator()
    other = DataLoader(dataset, **{"batch_size": BATCH, "generator": rng, **plain(dataset, rng)})
    expected = [list(other) for _ in range(2)], torch.get_rng_state(), rng.get_state()
    assert len(loader) == len(other) == len(found[0][0])
    assert same(found, expected)


def test_old_ways_to_go_through_it_are_one() -> None:
    loader = WrappedDataLoader(Crops(), batch_size=8, is_train=False, device="cpu")
    ways = [list(loader), list(loader.loader), list(iter(loader.loader)), [loader[:8], loader[8:16], loader[16:]]]
    assert all(alike(way, ways[0]) for way in ways)
    assert ways[0][0]["meta"]["file"][:2] == ["0.npy", "1.npy"]
    assert len(loader) == len(loader.loader) == 3
    assert loader[3]["raw"].shape == (1, 1, 2, 2)
    assert loader[[5, 2]]["meta"]["index"].tolist() == loader[torch.tensor([5, 2])]["meta"]["index"].tolist() == [5, 2]
    first, second = iter(loader), iter(loader)
    assert alike(next(first), next(second)) and not alike(next(first), next(iter(loader)))


def test_what_can_be_read_from_a_dataloader_can_be_read_from_it() -> None:
    dataset = PairDataset(N)
    loader = WrappedDataLoader(dataset, BATCH, sampler=SequentialSampler(dataset), timeout=0, device="cpu")
    assert loader.dataset is dataset and loader.batch_size == BATCH and loader.drop_last is False
    assert isinstance(loader.sampler, SequentialSampler) and isinstance(loader.batch_sampler, BatchSampler)
    assert "this process" in loader.decision
    assert isinstance(loader._pytorch_loader, DataLoader) and not isinstance(loader, DataLoader)
    for name in ("batch_size", "sampler", "dataset", "num_workers"):
        with pytest.raises(ValueError, match=f"{name} cannot be set after the loader is built"):
            setattr(loader, name, None)
    with pytest.raises(AttributeError, match="'WrappedDataLoader' object has no attribute '_pool'"):
        _ = loader._pool
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = loader.nothing_like_that


@pytest.mark.parametrize(
    ("given", "workers", "prefetch", "persistent"),
    [
        ({}, 0, None, False),
        ({"num_workers": 2}, 2, 2, True),
        ({"num_workers": 2, "prefetch_factor": 4, "persistent_workers": False}, 2, 4, False),
        ({"num_workers": 0, "prefetch_factor": 4, "persistent_workers": True}, 0, None, False),
        ({"num_workers": 0, "pin_memory": True}, 0, None, False),
        ({"pin_memory": False, "device": "cpu"}, 0, None, False),
    ],
    ids=str,
)
def test_settings_are_legal_whatever_is_given(
    given: dict[str, Any], workers: int, prefetch: int | None, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chirpid_patch.factory.pinning_device", lambda: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # on a machine with fewer CPUs
        warnings.filterwarnings("error", message=".*pin_memory")
        loader = WrappedDataLoader(PairDataset(N), BATCH, **{"device": "cpu", **given})
        if not workers:
            list(loader)
    settings = loader._num_workers, loader._prefetch_factor, loader._persistent_workers, loader._pin_memory
    assert settings == (workers, prefetch, persistent, False)


@pytest.mark.parametrize(("given", "pinned"), [({}, True), ({"pin_memory": False}, False), ({"device": "cpu"}, False)])
def test_memory_is_pinned_for_the_device_that_profits(
    given: dict[str, Any], pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chirpid_patch.recipes.wrapped_loader.pinning_device", lambda: "meta")
    loader = WrappedDataLoader(PairDataset(N), BATCH, **given)
    assert loader._pin_memory is pinned
    assert loader.device.type == given.get("device", "meta")


def test_a_measured_choice_is_not_forbidden() -> None:
    loader = WrappedDataLoader(PairDataset(N), BATCH, tune=True, tune_seconds=0.05, device="cpu")
    assert "num_workers=0 was asked for" not in loader.decision and len(numbers(loader)) == N


def test_batches_come_on_the_device() -> None:
    loader = WrappedDataLoader(Crops(), BATCH, is_train=False, device="meta")
    for batch in (next(iter(loader)), next(iter(loader.loader)), loader[[1, 2]]):
        assert batch["raw"].device.type == batch["meta"]["index"].device.type == "meta"
        assert isinstance(batch["meta"]["file"], list)
    assert next(iter(loader._pytorch_loader))["raw"].device.type == "cpu"
    assert loader.to("cpu") is loader
    assert loader.device.type == "cpu" and next(iter(loader))["raw"].device.type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="'cuda'"):
        WrappedDataLoader(PairDataset(N), BATCH, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_come_on_the_gpu_from_pinned_memory() -> None:
    loader = WrappedDataLoader(TensorDataset(torch.arange(24.0).view(12, 2)), BATCH, is_train=False)
    assert loader.device.type == "cuda" and loader._pin_memory
    assert next(iter(loader._pytorch_loader))[0].is_pinned()
    batches = [x for (x,) in loader]
    assert all(x.is_cuda for x in batches) and torch.cat(batches).cpu().flatten().tolist() == list(range(24))


def test_validation_sees_every_sample() -> None:
    with pytest.warns(UserWarning, match="drop_last=True is ignored"):
        loader = WrappedDataLoader(PairDataset(N), 8, is_train=False, drop_last=True, device="cpu")
    assert numbers(loader) == list(range(N))


def test_a_training_of_less_than_a_batch_keeps_it() -> None:
    assert sorted(numbers(WrappedDataLoader(PairDataset(3), 8, device="cpu"))) == [0, 1, 2]


def test_refresh_draws_anew_and_nothing_else_does() -> None:
    calls: list[tuple[int, int, torch.Generator | None]] = []

    def draw(batch_size: int, num_samples: int, rng: torch.Generator | None) -> Sequence[int]:
        calls.append((batch_size, num_samples, rng))
        return range(len(calls), len(calls) + 3)

    rng = generator()
    loader = WrappedDataLoader(PairDataset(N), BATCH, sampler=draw, rng=rng, device="cpu")
    assert numbers(loader) == numbers(loader) == [1, 2, 3]
    loader.refresh()
    assert numbers(loader) == [2, 3, 4]
    assert calls == [(BATCH, N, rng)] * 2
    halves = iter([[0, 1], [2, 3, 4]])
    subset = WrappedDataLoader(PairDataset(N), BATCH, indices=lambda: next(halves), device="cpu")
    assert sorted(numbers(subset)) == [0, 1]
    subset.refresh()
    assert sorted(numbers(subset)) == [2, 3, 4] and len(subset) == 1
    plain = WrappedDataLoader(PairDataset(N), BATCH, is_train=False, device="cpu")
    plain.refresh()
    assert numbers(plain) == list(range(N))


def test_samples_of_an_epoch_are_drawn_anew_without_refresh() -> None:
    seed_all(1)
    for given in ({"iterations_per_epoch": 2}, {"weighted_sampler": WEIGHTS}):
        loader = WrappedDataLoader(PairDataset(N), BATCH, device="cpu", **given)
        assert numbers(loader) != numbers(loader)
    repeated = numbers(WrappedDataLoader(PairDataset(3), 2, iterations_per_epoch=6, device="cpu"))
    assert [repeated.count(number) for number in range(3)] == [4, 4, 4]


def test_weights_come_from_the_dataset() -> None:
    seed_all(2)
    made = WrappedDataLoader(SamplingCrops(), BATCH, weighted_sampler=True, device="cpu")
    assert [batch["meta"]["index"].tolist() for batch in made] == [[N - 1] * BATCH] * 3
    loader = WrappedDataLoader(Crops(2), BATCH, weighted_sampler=True, iterations_per_epoch=50, device="cpu")
    drawn = torch.cat([batch["meta"]["index"] for batch in loader])
    assert len(drawn) == 200 and drawn.float().mean() > 0.8  # the second is drawn eleven times as often
    with pytest.raises(TypeError, match=r"PairDataset.*get_weighted_sampler.*sample_weights"):
        WrappedDataLoader(PairDataset(N), weighted_sampler=True, device="cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weighted_sampler": WEIGHTS, "indices": [1]}, "weighted_sampler and indices exclude each other"),
        ({"sampler": [1], "indices": [1]}, "sampler and indices exclude each other"),
        ({"sampler": [1], "iterations_per_epoch": 2}, "iterations_per_epoch and sampler exclude each other"),
        ({"iterations_per_epoch": 0}, "iterations_per_epoch must be a number of batches"),
        ({"weighted_sampler": WEIGHTS[1:]}, r"the shape \(19,\): pass a weight for each of 20"),
        ({"indices": [0, N]}, "out of range for 20 samples"),
        ({"indices": torch.ones(N, dtype=torch.bool)}, "convert a mask with numpy.flatnonzero"),
        ({"indices": [0.5]}, "must be a sequence of integers"),
        ({"indices": [[1]]}, "must be a sequence of integers"),
    ],
    ids=lambda one: one if isinstance(one, str) else "+".join(one),
)
def test_samplings_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WrappedDataLoader(PairDataset(N), BATCH, device="cpu", **given)


def test_a_stream_of_samples_has_its_own_order() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    batches = list(WrappedDataLoader(Stream(), 3, device="cpu"))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_empty_subset_is_an_empty_epoch() -> None:
    assert numbers(WrappedDataLoader(PairDataset(N), indices=[], is_train=False, device="cpu")) == []


class Stacking(WrappedDataLoader):
    """A loader class of a project."""

    def __init__(self, dataset: Any, scale: float, **kwargs: Any) -> None:
        self.scale = scale
        super().__init__(dataset, **kwargs)

    def collate_fn(self, samples: Any) -> Any:
        x, y = super().collate_fn(samples)
        return {"x": x * self.scale, "y": y, "pid": os.getpid()}


def test_a_subclass_says_how_batches_are_made() -> None:
    loader = Stacking(PairDataset(N), 0.5, batch_size=8, is_train=False, device="cpu")
    batch = next(iter(loader))
    assert batch["x"][:, 0, 0, 0].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    assert alike(loader[:8], batch)
    function = WrappedDataLoader(PairDataset(N), BATCH, is_train=False, collate_fn=list, device="cpu")
    assert [y for _, y in next(iter(function))] == [0, 1, 2, 3]


class Turns:
    """A sampler that gives other samples every time that it is asked."""

    def __init__(self, *turns: range) -> None:
        self.turns = list(turns)

    def __call__(self) -> range:
        return self.turns.pop(0)


def test_workers_stay_when_it_samples_anew_and_end_with_shutdown() -> None:
    turns = Turns(range(0, 8), range(8, 20))
    loader = Stacking(PairDataset(N), 2.0, batch_size=BATCH, sampler=turns, num_workers=1, device="cpu")
    before = list(loader)
    loader.refresh()
    after = list(loader)
    assert [batch["y"].tolist() for batch in before + after] == torch.arange(N).view(5, BATCH).tolist()
    (worker,) = {batch["pid"] for batch in before + after}
    assert worker != os.getpid() and worker in {child.pid for child in multiprocessing.active_children()}
    loader.shutdown()
    assert worker not in {child.pid for child in multiprocessing.active_children()}


def test_it_can_be_pickled() -> None:
    loader = Stacking(PairDataset(N), 0.5, batch_size=8, rng=generator(), device="cpu")
    list(loader)
    twin = pickle.loads(pickle.dumps(loader))
    assert alike(list(twin), list(loader))
    assert twin.scale == 0.5 and twin.device == loader.device and len(twin) == 3


def test_what_it_no_longer_has_names_what_it_has() -> None:
    loader = Stacking(PairDataset(N), 1.0, device="cpu")
    for name, instead in REMOVED.items():
        assert not hasattr(loader, name) and getattr(loader, name, None) is None
        with pytest.raises(AttributeError) as raised:
            getattr(loader, name)
        assert str(raised.value) == f"Stacking has no {name} any more: {instead}"
        for used in re.findall(r"`(\w+)(?:\(\))?`", instead):
            assert hasattr(loader, used) or used == "num_workers", used


def rows_of_notes(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the migration notes."""
    section = NOTES.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    return [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]


def test_the_migration_notes_name_only_what_there_is() -> None:
    rows = rows_of_notes("Attributes and methods")
    loader = WrappedDataLoader(PairDataset(N), device="cpu")
    old = {name for row in rows for name in re.findall(r"`(?:loader\.)?(\w+)", row[0])}
    assert REMOVED.keys() <= old
    named = [name for row in rows for name in re.findall(r"`loader\.(\w+)", row[1])]
    assert {"_pin_memory", "_prefetch_factor", "_pytorch_loader", "loader", "refresh"} <= set(named)
    assert [name for name in named if not hasattr(loader, name)] == []


def test_helpers_in_the_migration_notes_take_the_calls_they_took() -> None:
    checked = 0
    for was, now, _ in rows_of_notes("Functions from guides"):
        modules = [importlib.import_module(name) for name in re.findall(r"`(chirpid_patch\.[\w.]+)`", now)]
        for name, arguments in re.findall(r"`(\w+)(?:\(([\w, ]*)\))?`", was):
            (helper,) = {vars(module)[name] for module in modules if name in vars(module)} or {None}
            if modules and name != "num_workers":
                assert helper is not None, name
                inspect.signature(helper).bind(*(one for one in arguments.split(", ") if one)) if arguments else None
                checked += 1
    assert checked >= 15
