"""Samples held on the device: batches, order and random numbers are the ordinary loader's (mostly on the CPU)."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from devices import AWAY
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, global_states, run, same, seed_all, tensor_data
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

from chirpid_patch import (
    BatchedDataLoader,
    Compose,
    GaussianNoise,
    OptimalDataLoaderFactory,
    SpecAugment,
    Standardize,
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    collate_pairs,
)
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.device import resident as resident_loading
from chirpid_patch.device.resident import ResidentPlacement
from chirpid_patch.device.resident_tensors import NotResidentError
from chirpid_patch.transforms import off_cpu, spectrograms
from chirpid_patch.transforms.device_noise import add_device_noise_
from chirpid_patch.transforms.noise import add_noise_
from chirpid_patch.transforms.symmetries import FlipsAndTurns

Factory = OptimalDataLoaderFactory
SHAPE = (2, 7, 9)
HELD: dict[str, Any] = {"device": "cpu", "resident_share": 0.5}


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of samples that are held are made as on a device, in few operations; exact noise excepted."""
    making = []

    def fetch(*arguments: Any) -> Any:
        making.append(arguments)
        try:
            return fetch_batch(*arguments)
        finally:
            making.pop()

    def add_noise(*arguments: Any) -> None:
        on_cpu = arguments[0].device.type == "cpu"
        (add_noise_ if arguments[-1] == "exact" and on_cpu else add_device_noise_)(*arguments)

    monkeypatch.setattr(off_cpu, "is_off_cpu", lambda tensor: bool(making) or tensor.device.type != "cpu")
    monkeypatch.setattr(resident_loading, "fetch_batch", fetch)
    monkeypatch.setattr(spectrograms, "add_device_noise_", add_noise)


def is_held(loader: Any) -> bool:
    return loader.placement is not None and loader.placement.is_held


def held_bytes(loader: Any) -> int:
    return int(loader.placement.bytes)


def resident(dataset: Any, batch_size: int = 4, **options: Any) -> BatchedDataLoader[Any]:
    loader = Factory.create_training_loader(dataset, batch_size, **HELD, **options)
    assert isinstance(loader, BatchedDataLoader) and is_held(loader), loader.decision  # type: ignore[attr-defined]
    return loader


def ordinary(dataset: Any, batch_size: int = 4, **options: Any) -> DataLoader[Any]:
    return Factory.create_training_loader(dataset, batch_size, prefetch_threads=0, **options)


def standardized(n: int, mean: Any = 0.4, std: Any = 0.3, data: Any = None) -> WorkerSafeStandardizedDataset:
    data = tensor_data(n, SHAPE) if data is None else data
    return WorkerSafeStandardizedDataset(data, np.random.RandomState(n).permutation(n), mean, std)


def augmented(base: Any, *transforms: Any) -> WorkerSafeAugmentedDataset:
    return WorkerSafeAugmentedDataset(base, transforms=transforms)


MASKS = SpecAugment(4, 3, num_time_masks=2, num_freq_masks=1, mask_value=-0.25)
NOISE = GaussianNoise(0.1)

#: Datasets of n samples of every kind that can be held.
KINDS: dict[str, Callable[[int], Any]] = {
    "tensors": lambda n: tensor_data(n, SHAPE),
    "numbers": lambda n: tensor_data(n, ()),
    "three tensors": lambda n: TensorDataset(torch.rand(n, 2), torch.arange(n), torch.rand(n, 1) > 0.5),
    "standardised by tensors": lambda n: standardized(n, torch.tensor(0.4), torch.tensor(0.3)),
    "standardised by numbers": lambda n: standardized(n, np.float64(0.4), 0.3),
    "standardised a channel": lambda n: standardized(n, torch.rand(2, 1, 1), torch.rand(2, 1, 1) + 0.1),
    "standardised to more axes": lambda n: standardized(n, torch.rand(3, 1, 1, 1), 1, tensor_data(n, (1, 2, 2))),
    "standardised bytes": lambda n: standardized(n, 3, 1.7, TensorDataset(bytes_of(n), torch.arange(n))),
    "standardised halves": lambda n: standardized(n, 0.4, 0.3, TensorDataset(bytes_of(n).half(), torch.arange(n))),
    "standardised doubles": lambda n: standardized(n, 0.4, 0.3, TensorDataset(bytes_of(n).double(), torch.arange(n))),
    "standardised numbers": lambda n: standardized(n, torch.tensor(0.4), 0.3, tensor_data(n, ())),
    "arrays": lambda n: WorkerSafeArrayDataset(bytes_of(n).numpy(), np.arange(n)),
    "scaled bytes": lambda n: WorkerSafeArrayDataset(bytes_of(n), torch.arange(n), dtype=torch.float32, divisor=255),
    "sequence": lambda n: WorkerSafeSequenceDataset(tensor_data(n, SHAPE)),
    "subset of a subset": lambda n: Subset(Subset(standardized(n + 2), range(1, n + 1)), list(range(n))[::-1]),
    "parts": lambda n: ConcatDataset([tensor_data(n, SHAPE), standardized(n + 1), Subset(tensor_data(3, SHAPE), [2])]),
    "augmented": lambda n: augmented(standardized(n), MASKS, NOISE),
    "augmented twice": lambda n: augmented(Subset(augmented(standardized(n), NOISE), range(n)), NOISE, MASKS),
    "augmented parts": lambda n: ConcatDataset([augmented(standardized(n), NOISE), augmented(tensor_data(n, SHAPE))]),
    "composed": lambda n: augmented(tensor_data(n, SHAPE), Compose([Standardize(0.4, 0.3), Compose([MASKS])]), None),
    "turned": lambda n: augmented(tensor_data(n, (1, 5, 5)), FlipsAndTurns(0.7)),
    "pooled noise": lambda n: augmented(standardized(n), GaussianNoise(0.1, mode="pooled")),
    "exact noise": lambda n: augmented(standardized(n), GaussianNoise(0.1, mode="exact")),
    "all masked": lambda n: augmented(standardized(n), SpecAugment(99, 99, p=1.0)),
    "short axes": lambda n: augmented(standardized(n), SpecAugment(99, 2, p=1.0, mask_short_axes=False)),
    "no masks": lambda n: augmented(standardized(n), SpecAugment(num_time_masks=0, num_freq_masks=0)),
    "masked bytes": lambda n: augmented(TensorDataset(bytes_of(n), torch.arange(n)), SpecAugment(3, 3, mask_value=7)),
    "masked brain floats": lambda n: augmented(TensorDataset(bytes_of(n).bfloat16(), torch.arange(n)), MASKS, NOISE),
    "not training": lambda n: WorkerSafeAugmentedDataset(standardized(n), training=False, transforms=[torch.sin]),
}


def bytes_of(n: int) -> Tensor:
    return torch.randint(0, 256, (n, *SHAPE), generator=torch.Generator().manual_seed(n), dtype=torch.uint8)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.integers(1, 13),
    batch_size=st.integers(1, 6),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    num_workers=st.integers(0, 2),
    persistent=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_batches_and_random_states_are_the_ordinary_loaders(
    kind: str, n: int, batch_size: int, shuffle: bool, drop_last: bool, num_workers: int, persistent: bool, seed: int
) -> None:
    dataset = KINDS[kind](n)
    options: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last and n >= batch_size}
    options |= {"num_workers": num_workers, "persistent_workers": persistent and num_workers > 0}
    expected = run(ordinary(dataset, batch_size, **options), epochs=3, seed=seed)
    batches, states = run(resident(dataset, batch_size, **options), epochs=3, seed=seed)
    assert same(batches, expected[0])
    assert states == expected[1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_held(kind: str) -> None:
    dataset = KINDS[kind](9)
    assert same(run(resident(dataset)), run(ordinary(dataset)))


def test_the_guides_augmentation_on_real_spectrograms() -> None:
    dataset = WorkerSafeAugmentedDataset(
        WorkerSafeStandardizedDataset(tensor_data(5, (1, 224, 313)), range(5), torch.tensor(0.5), torch.tensor(0.3)),
        {"spec_augment_params": {}, "gaussian_noise_params": {}},
    )
    assert same(run(resident(dataset)), run(ordinary(dataset)))


def test_noise_in_several_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.transforms.device_noise._NOISE_AT_A_TIME", 300)
    dataset = augmented(tensor_data(11, SHAPE), NOISE)
    assert same(run(resident(dataset, 8)), run(ordinary(dataset, 8)))


def test_pairs_come_as_tuples_where_the_callers_collation_gives_them() -> None:
    dataset = standardized(7)
    batches, _ = run(resident(dataset, collate_fn=collate_pairs))
    assert same(batches, run(ordinary(dataset, collate_fn=collate_pairs))[0])
    assert type(batches[0]) is tuple


def test_workers_that_were_asked_for_only_decide_what_is_drawn() -> None:
    dataset = standardized(9)
    loader = resident(dataset, num_workers=2, prefetch_factor=4)
    assert loader.worker_processes == 0
    assert "num_workers has no effect; prefetch_factor has no effect" in loader.decision
    assert same(run(loader), run(ordinary(dataset, num_workers=2)))


@pytest.mark.filterwarnings("ignore:neither torch.distributed nor torchrun")
@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_has_its_share(rank: int) -> None:
    dataset = augmented(standardized(11), MASKS, NOISE)
    share: dict[str, Any] = {"distributed": True, "world_size": 2, "rank": rank, "seed": 5}
    held: Any = resident(dataset, **share)
    other: Any = ordinary(dataset, **share)
    assert same(run(held), run(other))
    for loader in (held, other):
        loader.sampler.set_epoch(1)
    assert same(run(held), run(other))


# --- one upload ---------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets how much memory the device has free, in bytes."""

    def set_to(count: int) -> None:
        monkeypatch.setattr(resident_loading, "available_device_memory", lambda device: count)

    yield set_to


def test_bytes_are_held_as_bytes() -> None:
    loader = resident(WorkerSafeArrayDataset(bytes_of(10), torch.arange(10), dtype=torch.float32, divisor=255))
    assert held_bytes(loader) == bytes_of(10).numel() + 10 * 8
    assert "1.3 KiB" in loader.decision


def test_folds_share_one_upload_that_is_freed_with_the_last_of_them(free: Callable[[int], None]) -> None:
    data = tensor_data(8)
    size = sum(tensor.nbytes for tensor in data.tensors)
    free(2 * size)
    train = resident(Subset(data, range(4)))
    free(0)
    folds = [
        resident(WorkerSafeStandardizedDataset(data, range(start, start + 4), 0.4, 0.3)) for start in range(4)
    ]  # nothing more is needed
    assert {held_bytes(fold) for fold in folds} == {size}
    del train, folds[1:]
    again = resident(data)
    folds[0].shutdown()
    again.shutdown()
    with pytest.raises(NotResidentError, match=r"50% .* 0\.0 KiB .* cpu"):
        BatchedDataLoader(data, 4, prefetch_threads=0, placement=ResidentPlacement("cpu"))


def test_a_loader_that_was_shut_down_uploads_again() -> None:
    dataset = standardized(9)
    loader = resident(dataset)
    with loader:
        expected = run(loader)
    assert held_bytes(loader) == 0
    loader.load_state_dict({"epochs_begun": 0, "base_seed": None})
    assert same(run(loader), expected)
    assert held_bytes(loader) > 0


def test_what_does_not_fit_is_loaded_as_ever_and_moved(
    free: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    data = tensor_data(1000)
    free(200_000)
    with caplog.at_level(logging.DEBUG, logger="chirpid_patch"):
        loader: Any = Factory.create_training_loader(data, 4, device="cpu", resident_share=0.1)
    reason = "and not built on cpu, because the samples take 101.6 KiB, more than 10% of the 195.3 KiB free on cpu"
    assert reason in loader.decision
    assert reason in caplog.text
    assert not is_held(loader)
    assert isinstance(loader, BatchedDataLoader)
    assert same(run(loader), run(ordinary(data)))


def test_what_turns_out_not_to_fit_is_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(source: Tensor, device: torch.device) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(resident_loading, "DeviceTensorCopy", upload)
    data = tensor_data(10)
    loader: Any = Factory.create_training_loader(data, 4, **HELD)
    assert "and not built on " in loader.decision and "1.0 KiB" in loader.decision
    assert same(run(loader), run(ordinary(data)))


def test_a_dataset_that_outgrows_the_device_goes_on_from_the_cpu(free: Callable[[int], None]) -> None:
    dataset = standardized(9)
    loader = resident(dataset)
    free(0)
    dataset.base_dataset.tensors = tuple(tensor.clone() for tensor in dataset.base_dataset.tensors)
    assert same(run(loader), run(ordinary(dataset)))
    assert held_bytes(loader) == 0


# --- changes underneath -------------------------------------------------------------------------------------


def watched(dataset: Any, loader: Any, change: Callable[[Any], None]) -> list[Any]:
    """The batches of two epochs; the dataset is changed after the second one, and between the epochs."""
    seed_all(3)
    batches = []
    for _ in range(2):
        for number, batch in enumerate(loader):
            batches.append(batch)
            if number == 1:
                change(dataset)
        change(dataset)
    return batches


def add_in_place(dataset: Any) -> None:
    dataset.base_dataset.base_dataset.tensors[0].add_(1)


def replace_tensors(dataset: Any) -> None:
    base = dataset.base_dataset.base_dataset
    base.tensors = tuple(tensor + 1 for tensor in base.tensors)


def move_mean(dataset: Any) -> None:
    dataset.base_dataset.mean = dataset.base_dataset.mean + 1


def move_channel_means(dataset: Any) -> None:
    dataset.base_dataset.mean = torch.rand(2, 1, 1)
    dataset.base_dataset.mean.mul_(2)


def switch_training(dataset: Any) -> None:
    dataset.set_training(not dataset.training)


def widen_masks(dataset: Any) -> None:
    dataset.transforms[0].time_mask_param += 3
    dataset.transforms[1].std *= 2


def another_transform(dataset: Any) -> None:
    dataset.transforms[1] = torch.sin  # code of others: such batches are read on the CPU


@pytest.mark.parametrize(
    "change",
    [
        add_in_place,
        replace_tensors,
        move_mean,
        move_channel_means,
        switch_training,
        widen_masks,
        another_transform,
    ],
)
def test_changes_are_seen_from_the_next_batch_on(change: Callable[[Any], None]) -> None:
    def batches(make: Any) -> list[Any]:
        dataset = augmented(standardized(17), copy.deepcopy(MASKS), copy.deepcopy(NOISE))
        seed_all(1)
        return watched(dataset, make(dataset), change)

    assert same(batches(resident), batches(ordinary))


def test_writes_through_numpy_are_seen_from_the_next_epoch_on() -> None:
    array = np.zeros((6, 4000), dtype=np.float32)
    dataset = WorkerSafeArrayDataset(array, np.arange(6))
    loader = resident(dataset, 6, shuffle=False)
    assert next(iter(loader))[0].max() == 0
    array[4, 100:1124] = 1  # 4096 bytes, anywhere
    assert next(iter(loader))[0].sum() == 1024


def test_dense_tensors_in_another_order_are_held_and_looked_at() -> None:
    array = np.zeros((3, 5, 2), dtype=np.float32)
    data = TensorDataset(torch.from_numpy(array).permute(1, 2, 0), torch.arange(5))
    loader = resident(data, 5, shuffle=False)
    assert next(iter(loader))[0].is_contiguous()
    array += 1
    assert next(iter(loader))[0].min() == 1


# --- what cannot be held ------------------------------------------------------------------------------------


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class Logged(WorkerSafeStandardizedDataset):
    def read_sample(self, index: Any, key: Any) -> Any:
        return super().read_sample(index, key)


class Renamed(WorkerSafeStandardizedDataset):
    """As migrated code has them: another constructor, the same samples."""

    def __init__(self, data: Any, indices: Any) -> None:
        super().__init__(data, indices, torch.tensor(0.4), torch.tensor(0.3))

    def __len__(self) -> int:
        return len(self.indices)


class Louder(GaussianNoise):
    def transform_rows_(self, batch: Tensor, keys: Any, rows: Any) -> None:
        batch[rows] += 1


class QuietNoise(GaussianNoise):
    def __init__(self) -> None:
        super().__init__(std=0.01)


def doubled(samples: Any) -> Any:
    return 2 * torch.stack([x for x, _ in samples])


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "iterable": (Numbers, {"shuffle": None}, "samples of an iterable dataset cannot be read by index"),
    "single samples": (lambda: tensor_data(5), {"batch_size": None}, "automatic batching is off"),
    "own collation": (lambda: tensor_data(5), {"collate_fn": doubled}, "a custom collate_fn needs"),
    "own dataset": (lambda: PairDataset(5), {}, "PairDataset reads samples with its own code"),
    "own reading": (lambda: Logged(tensor_data(5), range(5), 0, 1), {}, "Logged reads samples with its own code"),
    "list": (lambda: WorkerSafeSequenceDataset([(torch.ones(1), 1)] * 5), {}, "the samples are the items of a list"),
    "own transform": (lambda: augmented(tensor_data(5), torch.sin), {}, "the augmentation sin only supports single"),
    "changed transform": (lambda: augmented(tensor_data(5), Louder()), {}, "the augmentation Louder only supports"),
    "gradients": (lambda: TensorDataset(torch.ones(5, 2, requires_grad=True)), {}, "is not a plain tensor in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_held_is_loaded_as_ever_and_the_reason_said(case: str) -> None:
    make, options, reason = REFUSED[case]
    dataset = make()
    loader: Any = Factory.create_training_loader(dataset, **{"batch_size": 2, **HELD, **options})
    assert reason in loader.decision
    assert isinstance(loader, BatchedDataLoader)
    assert same(run(loader), run(Factory.create_training_loader(dataset, **{"batch_size": 2, **options})))


def test_subclasses_that_change_no_sample_are_held() -> None:
    dataset = augmented(Renamed(tensor_data(9, SHAPE), range(9)), QuietNoise())
    assert same(run(resident(dataset)), run(ordinary(dataset)))


@pytest.mark.parametrize(
    ("dataset", "options", "error"),
    [
        (augmented(TensorDataset(bytes_of(4), torch.arange(4)), NOISE), {}, TypeError),
        (augmented(tensor_data(4, (3,)), MASKS), {}, ValueError),
        (tensor_data(4), {"sampler": [0, 9]}, IndexError),
        (ConcatDataset([tensor_data(2, (1,)), tensor_data(2, (2,))]), {"shuffle": False}, RuntimeError),
    ],
    ids=["noise on integers", "masks on numbers", "index", "unequal parts"],
)
def test_errors_are_those_of_the_ordinary_loader(dataset: Any, options: Any, error: type[Exception]) -> None:
    messages = []
    for make in (resident, ordinary):
        seed_all(1)
        with pytest.raises(error) as raised:
            list(make(dataset, **options))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


# --- what the device does -----------------------------------------------------------------------------------


def operations(dataset: Any, batch_size: int) -> list[str]:
    """PyTorch's operations for one batch, by name; on a device, each that computes is a kernel."""
    batches = iter(resident(dataset, batch_size, shuffle=False))
    with torch.autograd.profiler.profile() as profile:
        next(batches)
    return [event.name for event in profile.function_events]


@pytest.mark.parametrize(
    "kind", ["standardised by numbers", "augmented", "augmented twice", "composed", "pooled noise"]
)
def test_a_batch_takes_as_many_operations_whatever_its_size_and_waits_for_none(kind: str) -> None:
    dataset = KINDS[kind](64)
    operations(dataset, 64)  # tables of noise are made once
    many = operations(dataset, 64)
    assert len(many) == len(operations(dataset, 32))
    assert not {"aten::item", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::is_nonzero"} & set(many)


def test_all_masks_of_a_batch_are_one_operation() -> None:
    assert operations(augmented(standardized(64), MASKS), 64).count("aten::masked_fill_") == 1


# --- a loader to its callers --------------------------------------------------------------------------------


def test_it_is_a_loader_to_its_callers() -> None:
    dataset = standardized(9)
    loader = resident(dataset, 4, drop_last=True)
    assert isinstance(loader, DataLoader)
    assert (len(loader), loader.batch_size, loader.dataset, loader.num_workers) == (2, 4, dataset, 0)
    assert loader.device == torch.device("cpu")
    assert len(list(zip(loader, loader, strict=True))) == 2
    for x, _ in loader:
        assert x.to("cpu", non_blocking=True) is x
        break
    assert len(list(loader)) == 2


def test_a_batch_is_its_receivers_own() -> None:
    data = tensor_data(8)
    loader = resident(data, 8, shuffle=False)
    next(iter(loader))[0].zero_()
    assert torch.equal(next(iter(loader))[0], data.tensors[0])
    assert data.tensors[0].max() > 0


def test_it_is_not_pickled_but_can_be_copied() -> None:
    loader = resident(standardized(9))
    with pytest.raises(TypeError, match=r"are on cpu cannot be pickled"):
        pickle.dumps(loader)
    assert same(run(copy.copy(loader)), run(ordinary(standardized(9))))


def test_frameworks_can_make_it_anew_from_its_attributes() -> None:
    loader = resident(standardized(9), shuffle=False)
    names = (
        "dataset",
        "batch_size",
        "sampler",
        "drop_last",
        "collate_fn",
        "placement",
        "pin_memory",
        "prefetch_threads",
    )
    again = type(loader)(**{name: getattr(loader, name) for name in names})
    assert same(run(again), run(loader))


def test_a_training_resumes_between_epochs() -> None:
    dataset = augmented(standardized(9), MASKS, NOISE)
    seed_all(7)
    first = resident(dataset)
    list(first)
    states, kept = torch.get_rng_state(), first.state_dict()
    expected = list(first)
    second = resident(dataset)
    torch.set_rng_state(states)
    second.load_state_dict(kept)
    assert same(list(second), expected)


def test_inference_mode_changes_nothing() -> None:
    dataset = standardized(9)
    with torch.inference_mode():
        loader = resident(dataset, 9, shuffle=False)
        list(loader)
    dataset.base_dataset.tensors[0].mul_(2)
    assert same(run(loader), run(ordinary(dataset, 9, shuffle=False)))


def test_making_a_loader_draws_nothing() -> None:
    seed_all(3)
    before = global_states()
    resident(augmented(standardized(9), NOISE))
    assert global_states() == before


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="resident_share"):
        Factory.create_training_loader(tensor_data(4), 2, device="cpu", resident_share=share)


def test_worker_processes_are_refused_by_the_class() -> None:
    with pytest.raises(ValueError, match="num_workers"):
        BatchedDataLoader(tensor_data(4), 2, num_workers=1, prefetch_threads=0, placement=ResidentPlacement("cpu"))


# --- devices ------------------------------------------------------------------------------------------------

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def held_on(device: str, dataset: Any, **options: Any) -> BatchedDataLoader[Any]:
    loader = Factory.create_training_loader(dataset, 4, device=device, **options)
    assert isinstance(loader, BatchedDataLoader) and is_held(loader), loader.decision  # type: ignore[attr-defined]
    return loader


@pytest.mark.parametrize("device", AWAY)
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_gives_the_cpus_batches(kind: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_loading, "_HOLDING", (device, "cpu"))
    dataset = KINDS[kind](9)
    batches, states = run(held_on(device, dataset))
    expected = run(ordinary(dataset))
    assert states == expected[1]
    for batch, other in zip(batches, expected[0], strict=True):
        for column, reference in zip(batch, other, strict=True):
            assert column.device.type == device
            if kind == "exact noise":
                assert column.shape == reference.shape
            else:
                torch.testing.assert_close(column.cpu(), reference)


@cuda
def test_cuda_is_never_waited_for_in_the_loop() -> None:
    loader = held_on("cuda", augmented(standardized(9), MASKS, NOISE))
    list(loader)  # uploads tables
    batches = iter(loader)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(batches)) == 3
    finally:
        torch.cuda.set_sync_debug_mode("default")


@cuda
def test_cuda_memory_is_freed_with_the_loader() -> None:
    data = TensorDataset(torch.zeros(1 << 20, 4))
    before = torch.cuda.memory_allocated()
    loader = held_on("cuda", data)
    assert torch.cuda.memory_allocated() >= before + (16 << 20)
    del loader
    assert torch.cuda.memory_allocated() == before
