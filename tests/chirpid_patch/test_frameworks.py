"""Augmentation is as random as it should be whichever loader reads the datasets, and however loaders are made anew.

Each augmented sample has one of few outcomes of known probability, so that their distribution and their independence
from epoch to epoch, sample to sample and worker to worker can be tested exactly. All seeds are fixed.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, same, seed_all
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset

LEVEL = 1e-4
P, WIDEST, LENGTH = 0.8, 4, 9
N, BATCH = 160, 8

Outcomes = np.ndarray[Any, Any]


def dataset(n: int = N) -> WorkerSafeAugmentedDataset:
    """Spectrograms of ones, one time mask in most of them, each with its number."""
    params = {"time_mask_param": WIDEST, "num_freq_masks": 0, "p": P}
    return WorkerSafeAugmentedDataset(TensorDataset(torch.ones(n, 1, 2, LENGTH), torch.arange(n)), params)


def chances() -> dict[int, float]:
    """The probability of each outcome: ``width * LENGTH + start`` of the mask, 0 for none."""
    found = defaultdict(float, {0: 1 - P})
    for width in range(WIDEST + 1):
        starts = LENGTH - width + 1
        for start in range(starts):
            found[width * LENGTH + start if width else 0] += P / (WIDEST + 1) / starts
    return dict(found)


def outcomes(xs: torch.Tensor) -> Outcomes:
    hidden = (xs == 0).all(dim=-2).flatten(1).int()
    width, start = hidden.sum(1), hidden.argmax(1)
    return torch.where(width > 0, width * LENGTH + start, 0).numpy()


def epoch(loader: Any) -> tuple[Outcomes, Outcomes]:
    """The samples' numbers and outcomes, in the order they came."""
    batches = list(loader)
    xs, ys = (torch.cat([batch[part] for batch in batches]) for part in (0, 1))
    return ys.numpy(), outcomes(xs)


def by_number(loader: Any, epochs: int) -> Outcomes:
    """The outcome of each sample in each epoch (epochs, N), all samples seen once in each."""
    rows = []
    for _ in range(epochs):
        numbers, seen = epoch(loader)
        assert sorted(numbers) == list(range(N))
        rows.append(seen[np.argsort(numbers)])
    return np.stack(rows)


def assert_distributed_right(seen: Outcomes) -> None:
    expected = chances()
    values, counts = np.unique(seen, return_counts=True)
    assert set(values.tolist()) <= set(expected)
    observed = dict(zip(values.tolist(), counts.tolist(), strict=True))
    chi_square = sum((observed.get(key, 0) - seen.size * p) ** 2 / (seen.size * p) for key, p in expected.items())
    freedom = torch.tensor((len(expected) - 1) / 2)
    assert float(torch.special.gammaincc(freedom, torch.tensor(chi_square / 2))) > LEVEL


def assert_independent(left: Outcomes, right: Outcomes) -> None:
    """Pairs agree as often as two independent draws do; an outcome may be the left of one and the right of another."""
    p, p_thrice = (sum(chance**power for chance in chances().values()) for power in (2, 3))
    variance = p * (1 - p) + 2 * (p_thrice - p**2)
    z = ((left == right).sum() - left.size * p) / math.sqrt(left.size * variance)
    assert math.erfc(abs(z) / math.sqrt(2)) > LEVEL


def assert_as_random_as_it_should_be(rows: Outcomes) -> None:
    assert_distributed_right(rows)
    assert_independent(rows[:-1], rows[1:])  # from epoch to epoch
    assert_independent(rows[:, :-1], rows[:, 1:])  # from sample to sample
    assert_independent(rows[:, :-BATCH], rows[:, BATCH:])  # at the same place in the next worker's batch


def test_the_checks_notice_what_is_not_random_enough() -> None:
    generator = np.random.default_rng(0)
    values, weights = zip(*chances().items(), strict=True)
    assert sum(weights) == pytest.approx(1)
    rows = generator.choice(values, (8, N), p=weights)
    assert_as_random_as_it_should_be(rows)
    repeated = rows.copy()
    repeated[4:] = rows[:4]  # epochs 0 and 4 are no neighbours, but the distribution still is right
    assert_distributed_right(repeated)
    for wrong in (np.repeat(rows[::2], 2, axis=0), np.repeat(rows[:, ::2], 2, axis=1), np.where(rows, rows, 10)):
        with pytest.raises(AssertionError):
            assert_as_random_as_it_should_be(wrong)
    in_step = rows.reshape(8, -1, 2, BATCH)
    in_step[:, :, 1] = in_step[:, :, 0]  # two workers seeded alike
    with pytest.raises(AssertionError):
        assert_as_random_as_it_should_be(in_step.reshape(8, N))


ENDING_WORKERS = pytest.mark.parametrize("workers", [{}, {"num_workers": 2}], ids=["no workers", "workers"])
WORKERS = pytest.mark.parametrize(
    "workers",
    [
        pytest.param({}, id="no workers"),
        pytest.param({"num_workers": 2}, id="workers"),
        pytest.param({"num_workers": 2, "persistent_workers": True}, marks=pytest.mark.slow, id="persistent workers"),
    ],
)
KINDS = pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader], ids=["plain", "ours"])


@WORKERS
@KINDS
def test_epochs_samples_and_workers_differ(kind: Any, workers: Any) -> None:
    seed_all(1)
    loader = kind(dataset(), batch_size=BATCH, shuffle=True, **workers)
    assert_as_random_as_it_should_be(by_number(loader, 6))


@ENDING_WORKERS
@KINDS
def test_an_index_drawn_again_is_augmented_anew(kind: Any, workers: Any) -> None:
    seed_all(2)
    few = dataset(20)
    sampler = RandomSampler(few, replacement=True, num_samples=600)
    for _ in range(2):
        numbers, seen = epoch(kind(few, batch_size=BATCH, sampler=sampler, **workers))
        again = [np.flatnonzero(numbers == number) for number in range(20)]
        assert_distributed_right(seen)
        earlier, later = (np.concatenate([seen[places[part]] for places in again]) for part in (np.s_[:-1], np.s_[1:]))
        assert_independent(earlier, later)


@ENDING_WORKERS
@KINDS
def test_parts_that_are_the_same_dataset_differ(kind: Any, workers: Any) -> None:
    seed_all(3)
    part = dataset()
    for parts in ([part, part], [Subset(part, range(N)), Subset(part, range(N))]):
        loader = kind(ConcatDataset(parts), batch_size=BATCH, **workers)
        halves = [epoch(loader)[1].reshape(2, N) for _ in range(2)]
        for half in halves:
            assert_as_random_as_it_should_be(half)
        assert_independent(np.stack(halves[:-1]), np.stack(halves[1:]))


@pytest.mark.slow
@ENDING_WORKERS
@KINDS
def test_folds_over_one_dataset_differ(kind: Any, workers: Any) -> None:
    seed_all(4)
    shared = dataset()
    first, second = (kind(Subset(shared, range(N)), batch_size=BATCH, **workers) for _ in range(2))
    one_by_one = [by_number(first, 3), by_number(second, 3)]
    assert_independent(*one_by_one)
    pairs = list(zip(first, second, strict=True))  # side by side
    left, right = (outcomes(torch.cat([pair[side][0] for pair in pairs])) for side in (0, 1))
    assert_independent(left, right)
    assert_distributed_right(np.stack([*np.concatenate(one_by_one), left, right]))


@KINDS
def test_seeded_runs_repeat_and_others_differ(kind: Any) -> None:
    def run(seed: int) -> Outcomes:
        seed_all(seed)
        return by_number(kind(dataset(), batch_size=BATCH, shuffle=True, num_workers=2), 2)

    first = run(5)
    assert np.array_equal(run(5), first)
    assert_independent(run(6), first)


def test_ranks_seeded_alike_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(rank: int) -> Outcomes:
        monkeypatch.setenv("RANK", str(rank))
        seed_all(5)
        return by_number(BatchedDataLoader(dataset(), batch_size=BATCH), 4)

    assert_independent(run(0), run(1))


# --- loaders made anew, as Lightning does it --------------------------------------------------------------------


def arguments_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The arguments that a framework finds in a loader's attributes and signature, those at their default left out."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        parameters |= inspect.signature(DataLoader.__init__).parameters
    required = {name for name, one in parameters.items() if one.default is one.empty} - {"self", "args", "kwargs"}
    assert required <= set(attributes)
    return {
        name: attributes[name]
        for name, one in parameters.items()
        if name in attributes and (name == "dataset" or one.default is not attributes[name])
    }


def made_anew(loader: DataLoader[Any], sampler: Any) -> DataLoader[Any]:
    """Another loader of the same type with another sampler."""
    batches: Any = loader.batch_sampler
    if batches is None or type(batches) is BatchSampler:
        change = {"sampler": sampler, "shuffle": False, "batch_sampler": None}
    else:
        own = type(batches)(sampler, batches.batch_size, batches.drop_last)
        change = {"sampler": None, "shuffle": False, "batch_size": 1, "drop_last": False, "batch_sampler": own}
    again = type(loader)(**{**arguments_of(loader), **change})
    assert isinstance(again, DataLoader)
    return again


class OwnBatches(BatchSampler):
    """Batches that a user puts together."""


ORIGINALS: dict[str, Any] = {
    "direct": lambda: BatchedDataLoader(dataset(), BATCH, True),
    "prefetch threads": lambda: BatchedDataLoader(dataset(), batch_size=BATCH, shuffle=True, prefetch_threads=2),
    "workers": lambda: BatchedDataLoader(dataset(), batch_size=BATCH, shuffle=True, num_workers=2, keep_workers=True),
    "factory": lambda: OptimalDataLoaderFactory.create_training_loader(
        dataset(), BATCH, num_workers=2, persistent_workers=True, thread_safe=True, benchmark=True
    ),
    "own batches": lambda: BatchedDataLoader(
        dataset(), batch_sampler=OwnBatches(SequentialSampler(range(N)), BATCH, False), num_workers=1
    ),
    "plain": lambda: DataLoader(dataset(), batch_size=BATCH, shuffle=True, num_workers=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORIGINALS)
def test_a_loader_made_anew_with_a_distributed_sampler_is_as_random(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_all(7)
    original = ORIGINALS[name]()
    by_rank = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        sampler: Any = DistributedSampler(original.dataset, num_replicas=2, rank=rank, shuffle=True)
        loader = made_anew(original, sampler)
        assert type(loader) is type(original) and len(loader) == N // 2 // BATCH
        epochs = []
        for number in range(4):
            sampler.set_epoch(number)
            epochs.append(epoch(loader))
        by_rank.append(epochs)
    rows = []
    for left, right in zip(*by_rank, strict=True):
        numbers, seen = (np.concatenate(parts) for parts in zip(left, right, strict=True))
        assert sorted(numbers) == list(range(N))  # the ranks share the samples
        rows.append(seen[np.argsort(numbers)])
    assert_as_random_as_it_should_be(np.stack(rows))


@pytest.mark.parametrize("name", [name for name in ORIGINALS if name != "plain"])
def test_a_loader_made_anew_keeps_its_settings(name: str) -> None:
    original = ORIGINALS[name]()
    again = made_anew(original, SequentialSampler(range(N)))
    for setting in ("num_workers", "persistent_workers", "in_process",
                    "prefetch_threads", "thread_safe", "keep_workers", "benchmark", "pin_memory"):  # fmt: skip
        assert getattr(again, setting) == getattr(original, setting), setting
    # and once more, as frameworks do for another stage
    assert arguments_of(made_anew(again, SequentialSampler(range(N)))).keys() == arguments_of(again).keys()


KINDS_MADE_ANEW: dict[str, Any] = {
    **{name: make for name, make in ORIGINALS.items() if name != "plain"},
    "adjusting": lambda: OptimalDataLoaderFactory.create_training_loader(
        dataset(), BATCH, num_workers=2, adjust_workers=True
    ),
    "moved": lambda: OptimalDataLoaderFactory.create_training_loader(dataset(), BATCH, device="cpu"),
}


@pytest.mark.parametrize("name", KINDS_MADE_ANEW)
def test_all_that_a_loader_shows_is_an_argument_of_it(name: str) -> None:
    """As PyTorch's does: ignite gives all public attributes but the samplers' to the class, with other batches."""
    original = KINDS_MADE_ANEW[name]()
    ordering = {"batch_size", "sampler", "drop_last", "batch_sampler", "dataset_kind"}
    shown = {key: value for key, value in vars(original).items() if not key.startswith("_") and key not in ordering}
    again = type(original)(**shown, batch_sampler=BatchSampler(SequentialSampler(original.dataset), BATCH, False))
    assert sorted(epoch(again)[0]) == list(range(N))


def test_a_loader_made_anew_for_each_epoch_is_as_random() -> None:
    seed_all(8)
    original = ORIGINALS["direct"]()
    rows = [by_number(made_anew(original, RandomSampler(original.dataset)), 1)[0] for _ in range(5)]
    assert_as_random_as_it_should_be(np.stack(rows))


# --- accelerate -------------------------------------------------------------------------------------------------


@pytest.fixture
def accelerator() -> Iterator[Any]:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed (pip install -e '.[test]')")
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.mark.parametrize("name", [name for name in ORIGINALS if name != "plain"])
def test_a_loader_prepared_by_accelerate_is_as_random(name: str, accelerator: Any) -> None:
    seed_all(9)
    original = ORIGINALS[name]()
    prepared = accelerator.prepare(original)
    assert len(prepared) == len(original) == N // BATCH
    assert_as_random_as_it_should_be(by_number(prepared, 6))


@pytest.mark.parametrize("create", [OptimalDataLoaderFactory.create_loader, BatchedDataLoader])
def test_what_accelerate_prepared_has_the_workers_that_were_asked_for(create: Any, accelerator: Any) -> None:
    asked = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True, "timeout": 9, "worker_init_fn": print}
    loader = create(dataset(), batch_size=BATCH, multiprocessing_context="spawn", **asked)
    prepared = accelerator.prepare(loader)
    assert {name: getattr(prepared, name) for name in asked} == asked
    assert prepared.multiprocessing_context.get_start_method() == "spawn"


def test_what_accelerate_prepared_loads_the_same_samples(accelerator: Any) -> None:
    def batches(prepare: Any) -> list[Any]:
        seed_all(10)
        data = dataset()
        data.set_training(False)
        return list(prepare(BatchedDataLoader(data, batch_size=BATCH, shuffle=True)))

    assert same(batches(accelerator.prepare), batches(lambda loader: loader))


# --- samplers of other people -----------------------------------------------------------------------------------


class Unmeasured(Sampler[int]):
    """A sampler without a length, which PyTorch's loader asks for only when it is asked itself."""

    def __iter__(self) -> Iterator[int]:
        return iter([2, 0, 1])


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}], ids=["batches", "samples"])
def test_a_sampler_need_not_know_its_length(options: Any) -> None:
    for sampling in ({"sampler": Unmeasured()}, {"sampler": Unmeasured(), "num_workers": 1}):
        expected = list(DataLoader(PairDataset(3), **options, **sampling))
        assert same(list(BatchedDataLoader(PairDataset(3), **options, **sampling)), expected)
