"""A batch read at once is the batch collated from single samples, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, StandardizedSubset, same, tensor_data
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
)
from chirpid_patch.datasets.gather import fetch_batch, gather_node, permits_batched_reading
from chirpid_patch.datasets.samples import load_batch

SIZE = 12


class Doubled(TensorDataset):
    """A subclass whose samples are not the tensors' rows."""

    def __getitem__(self, index: Any) -> Any:
        x, y = (tensor[index] for tensor in self.tensors)
        return 2 * x, y


class Shifted(WorkerSafeStandardizedDataset):
    """A subclass of ours whose samples are its own."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + 1, y


class MetreSubset(Subset[Any]):
    """A subclass of Subset with samples of its own."""

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]][0], 7

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def array_of_own() -> Any:
    return np.array([Own(), Own()], dtype=object)


def replaced(dataset: Any) -> Any:
    dataset.tensors = (dataset.tensors[0], dataset.tensors[1][:2])
    return dataset


def standardized(base: Any) -> WorkerSafeStandardizedDataset:
    return WorkerSafeStandardizedDataset(base, np.arange(len(base))[::-1], 0.4, 0.3)


BATCHABLE: dict[str, Callable[[], Any]] = {
    "tensors": lambda: tensor_data(SIZE),
    "three tensors": lambda: TensorDataset(torch.rand(SIZE, 2), torch.arange(SIZE), torch.rand(SIZE, 3).double()),
    "one tensor": lambda: TensorDataset(torch.arange(SIZE, dtype=torch.uint8)),
    "tensors of another length": lambda: Head(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "strided tensors": lambda: TensorDataset(torch.rand(6, SIZE, 4).transpose(0, 1), torch.rand(2 * SIZE)[::2]),
    "half precision": lambda: TensorDataset(torch.rand(SIZE, 3).half(), torch.arange(SIZE)),
    "subset": lambda: Subset(tensor_data(2 * SIZE), list(range(0, 2 * SIZE, 2))),
    "subset by array": lambda: Subset(tensor_data(2 * SIZE), np.arange(2 * SIZE)[::-2]),  # type: ignore[arg-type]
    "subset by tensor": lambda: Subset(tensor_data(2 * SIZE), torch.arange(SIZE)),  # type: ignore[arg-type]
    "subset of a subset": lambda: Subset(Subset(tensor_data(30), range(5, 25)), range(SIZE)),
    "concatenation": lambda: ConcatDataset([tensor_data(5), tensor_data(SIZE - 5, seed=1)]),
    "standardized": lambda: standardized(tensor_data(SIZE)),
    "standardized twice": lambda: standardized(standardized(tensor_data(SIZE))),
    "standardized integers": lambda: standardized(
        TensorDataset(torch.arange(SIZE * 4).view(SIZE, 4), torch.ones(SIZE))
    ),
    "standardized numbers": lambda: standardized(TensorDataset(torch.rand(SIZE), torch.ones(SIZE))),
    "list of large samples": lambda: WorkerSafeSequenceDataset([(torch.rand(1 << 16), i) for i in range(SIZE)]),
    "sequence of standardized": lambda: WorkerSafeSequenceDataset(standardized(tensor_data(SIZE))),
}


class Head(TensorDataset):
    """A subclass that says it has fewer samples than there are."""

    def __len__(self) -> int:
        raise AssertionError("gathering asks for a length that samples are not read by")


class Growing(Subset[Any]):
    """A subclass that computes its indices each time."""

    @property
    def indices(self) -> Any:
        raise AssertionError("read on trial")

    @indices.setter
    def indices(self, indices: Any) -> None: ...


class Delegating(TensorDataset):
    """A subclass that is asked for what it has not."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("asked on trial")


class Own:
    """Indices of a class of the user's, and one index of it."""

    def __len__(self) -> int:
        raise AssertionError("read on trial")

    __getitem__ = __index__ = __iter__ = __len__  # type: ignore[assignment]


class ShortJoined(ConcatDataset[Any]):
    """A subclass whose negative indices count from elsewhere."""

    def __len__(self) -> int:
        return 2


def with_own_way(dataset: Any) -> Any:
    dataset.__getitems__ = lambda indices: [dataset[index] for index in reversed(indices)]
    return dataset


NOT_BATCHABLE: dict[str, Callable[[], Any]] = {
    "own way of many samples": lambda: with_own_way(tensor_data(SIZE)),
    "own way of many standardized samples": lambda: with_own_way(standardized(tensor_data(SIZE))),
    "subset of one with an own way": lambda: Subset(with_own_way(tensor_data(SIZE)), range(SIZE)),
    "computed indices": lambda: Growing(tensor_data(SIZE), []),
    "own indices": lambda: Subset(tensor_data(SIZE), Own()),  # type: ignore[arg-type]
    "list of own indices": lambda: Subset(tensor_data(SIZE), [Own(), Own()]),  # type: ignore[list-item]
    "indices of two dimensions": lambda: Subset(tensor_data(SIZE), torch.ones(SIZE).nonzero()),  # type: ignore[arg-type]
    "bytes, which are masks": lambda: Subset(tensor_data(SIZE), torch.ones(2, dtype=torch.uint8)),  # type: ignore[arg-type]
    "own indices of ours": lambda: WorkerSafeStandardizedDataset(tensor_data(SIZE), array_of_own(), 0.5, 0.2),
    "delegating tensors": lambda: Delegating(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "joined otherwise": lambda: ShortJoined([tensor_data(3), tensor_data(3)]),
    "tensors that were replaced": lambda: replaced(tensor_data(SIZE)),
    "user dataset": lambda: PairDataset(SIZE),
    "overridden tensors": lambda: Doubled(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "overridden subset": lambda: MetreSubset(tensor_data(SIZE), range(SIZE)),
    "overridden ours": lambda: Shifted(tensor_data(SIZE), range(SIZE), 0.5, 0.2),
    "tensors that require grad": lambda: TensorDataset(torch.rand(SIZE, 2, requires_grad=True), torch.ones(SIZE)),
}


@pytest.mark.parametrize("name", BATCHABLE)
@settings(max_examples=15)
@given(indices=st.lists(st.integers(-SIZE, SIZE - 1), min_size=1, max_size=20))
def test_a_batch_equals_its_collated_samples(name: str, indices: list[int]) -> None:
    dataset = BATCHABLE[name]()
    if name.startswith("subset"):  # range takes no negative index there
        indices = [index % SIZE for index in indices]
    torch.manual_seed(0)
    dataset = BATCHABLE[name]()
    assert same(fetch_batch(dataset, indices), default_collate([dataset[index] for index in indices]))


@pytest.mark.parametrize("name", NOT_BATCHABLE)
def test_what_has_its_own_way_of_reading_samples_is_read_that_way(name: str) -> None:
    dataset = NOT_BATCHABLE[name]()
    assert fetch_batch(dataset, [0, 1]) is None
    assert permits_batched_reading(dataset) is (name == "tensors that were replaced")  # else by PyTorch, in its workers


def test_no_indices_are_no_batch() -> None:
    assert fetch_batch(tensor_data(SIZE), []) is None


def test_concatenation_reads_parts_by_their_own_code() -> None:
    assert fetch_batch(ConcatDataset([tensor_data(3), PairDataset(3)]), [0, 4]) is None


@pytest.mark.parametrize(
    "make",
    [
        BATCHABLE["concatenation"],
        lambda: ConcatDataset([WorkerSafeArrayDataset(np.arange(6.0), np.arange(6))] * 2),
        lambda: ConcatDataset([standardized(PairDataset(6)), standardized(PairDataset(6))]),
        lambda: ConcatDataset([WorkerSafeSequenceDataset([(torch.rand(1 << 16), text) for text in "abcdef"])] * 2),
    ],
    ids=["tensors", "arrays", "samples of somebody else", "text"],
)
@pytest.mark.parametrize("indices", [[3], [1, 0], [0, 11], [*range(SIZE)] * 2], ids=len)
def test_joined_samples_are_those_that_pytorch_collates(make: Callable[[], Any], indices: list[int]) -> None:
    dataset = make()
    assert same(load_batch(dataset, indices, None, default_collate), default_collate([dataset[i] for i in indices]))


@pytest.mark.parametrize(
    "other",
    [
        (torch.rand(1 << 16), torch.tensor(1), 2),
        (torch.rand(1 << 16).half(), torch.tensor(1)),
        (torch.rand(1 << 15), torch.tensor(1)),
        (torch.rand(1 << 16).requires_grad_(), torch.tensor(1)),
        (torch.rand(1 << 16).to_sparse(), torch.tensor(1)),
        (torch.nn.Parameter(torch.rand(1 << 16)), torch.tensor(1)),
        (torch.rand(1 << 16, device="meta"), torch.tensor(1)),
        (torch.rand(1 << 16), torch.tensor([1, 2])),
        (torch.rand(1 << 16), torch.tensor(1.0)),
        (torch.rand(1 << 16), 1),
    ],
    ids=["triple", "dtype", "shape", "gradient", "sparse", "class", "device", "label shape", "label dtype", "number"],
)
def test_large_samples_that_differ_are_left_to_pytorch(other: Any) -> None:
    assert fetch_batch(WorkerSafeSequenceDataset([(torch.rand(1 << 16), torch.tensor(0)), other]), [0, 1]) is None


def test_large_samples_of_different_strides_are_stacked_as_by_pytorch() -> None:
    samples = [(torch.rand(1 << 16), 0), (torch.rand(1 << 17)[::2], 1)]
    batch = fetch_batch(WorkerSafeSequenceDataset(samples), [0, 1])
    assert same(batch, default_collate(samples))


@pytest.mark.parametrize("floats", [1 << 16, 1 << 20], ids=["collated by PyTorch", "stacked into reused memory"])
@pytest.mark.parametrize("label", [int, str, torch.tensor], ids=["numbers", "text", "tensors"])
def test_batches_of_a_list_are_those_of_pytorchs_loader(floats: int, label: Callable[[int], Any]) -> None:
    samples = [(torch.rand(floats), label(number)) for number in range(8)]
    expected = list(DataLoader(samples, batch_size=3))  # type: ignore[arg-type]
    for _ in range(2):  # the second epoch may use the memory of the first
        batches = list(OptimalDataLoaderFactory.create_loader(WorkerSafeSequenceDataset(samples), batch_size=3))
        assert same(batches, expected)


def strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0]


CHANGES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.Tensor.double,
    torch.Tensor.to_sparse,
    torch.Tensor.resolve_neg,
    torch.nn.Parameter,
    strided,
    lambda x: x.clone().requires_grad_(),
    lambda x: torch._neg_view(x),
    lambda x: torch.complex(x, x).conj(),
    lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),  # channels last
    lambda x: x[..., :1],
    lambda x: x[:1].expand(x.shape),
]
LABELS: list[Any] = [1, 1.5, "a", b"a", None, np.float32(2), torch.tensor(1), torch.tensor(2.0), torch.ones(2)]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.booleans())
def test_mixed_samples_of_a_list_are_collated_as_by_pytorch(data: st.DataObject, with_grad: bool) -> None:
    x = torch.rand(data.draw(st.sampled_from([(2, 256, 256), (1, 1 << 17), (1 << 17, 1, 1)])))
    changes = st.none() | st.sampled_from(CHANGES)
    change, label = data.draw(changes), data.draw(st.sampled_from(LABELS))
    samples = []
    for _ in range(data.draw(st.integers(1, 4))):
        differs = data.draw(st.integers(0, 3)) == 0
        by, y = (data.draw(changes), data.draw(st.sampled_from(LABELS))) if differs else (change, label)
        samples.append((x if by is None else by(x), y))
    with torch.set_grad_enabled(with_grad):
        try:
            batch = fetch_batch(WorkerSafeSequenceDataset(samples), range(len(samples)))
        except TypeError:  # labels of different types, as with PyTorch
            with pytest.raises(TypeError):
                default_collate(samples)
            return
        if batch is None:
            return
        expected = default_collate(samples)
    assert same(batch, expected)
    assert (batch[0].stride(), batch[0].requires_grad) == (expected[0].stride(), expected[0].requires_grad)


@pytest.mark.parametrize(
    "nest",
    [
        lambda listed: listed,
        lambda listed: Subset(listed, range(6)),
        lambda listed: ConcatDataset([listed, listed]),
        lambda listed: WorkerSafeSequenceDataset(Subset(listed, range(6))),
    ],
    ids=["list", "subset", "concatenation", "nested"],
)
def test_only_large_batches_of_lists_are_read_at_once(nest: Callable[[Any], Any]) -> None:
    def reads_at_once(floats: int) -> bool:
        return gather_node(nest(WorkerSafeSequenceDataset([(torch.rand(floats), 0)] * 6))).gains(32)

    assert not reads_at_once(1 << 16) and reads_at_once(1 << 18)


def test_a_list_of_small_samples_is_put_together_by_pytorch() -> None:
    dataset = WorkerSafeSequenceDataset([(torch.rand(2), i) for i in range(SIZE)])
    assert fetch_batch(dataset, [0, 1]) is None and permits_batched_reading(dataset)


def test_samples_of_somebody_else_are_standardised_one_after_the_other() -> None:
    dataset = standardized(PairDataset(SIZE))
    assert fetch_batch(dataset, [4, 1]) is None
    assert same(load_batch(dataset, [4, 1], None, default_collate), default_collate([dataset[4], dataset[1]]))


@pytest.mark.parametrize(
    "indices",
    [
        [np.int64(3), np.int32(1)],
        np.array([5, 0]),
        torch.tensor([2, 2]),
        [torch.tensor(4)],
        [-1, -SIZE],
        range(3),
    ],
    ids=["numpy integers", "array", "tensor", "0-dim tensors", "negative", "range"],
)
def test_every_kind_of_index_is_understood_as_by_the_samples(indices: Any) -> None:
    dataset = tensor_data(SIZE)
    expected = default_collate([dataset[index] for index in indices])
    assert same(fetch_batch(dataset, indices), expected)


@pytest.mark.parametrize(
    "index", [SIZE, -SIZE - 1, True, 1.0, slice(2), "a", torch.tensor([1]), torch.tensor(1, dtype=torch.uint8), Own()]
)
def test_an_index_that_samples_refuse_or_read_otherwise_is_left_to_them(index: Any) -> None:
    assert fetch_batch(tensor_data(SIZE), [0, index]) is None
    assert fetch_batch(BATCHABLE["concatenation"](), [0, index]) is None
    assert fetch_batch(Subset(tensor_data(SIZE), range(SIZE)), [SIZE]) is None


@pytest.mark.parametrize("name", BATCHABLE)
def test_a_batch_is_never_a_view_of_the_dataset(name: str) -> None:
    dataset = BATCHABLE[name]()
    before = [dataset[index] for index in range(SIZE)]
    batch = fetch_batch(dataset, list(range(SIZE)))
    assert batch is not None
    for column in batch:
        column.zero_()
    assert all(same(old, dataset[index]) for index, old in enumerate(before))


@settings(max_examples=40)
@given(
    mean=st.floats(-10, 10),
    std=st.floats(0, 10),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.uint8]),
    given_as=st.sampled_from(["float", "numpy", "float32 tensor", "float64 tensor"]),
)
def test_standardising_a_batch_rounds_as_standardising_samples(
    mean: float, std: float, dtype: torch.dtype, given_as: str
) -> None:
    convert: dict[str, Callable[[float], Any]] = {
        "float": float,
        "numpy": np.float64,
        "float32 tensor": lambda value: torch.tensor(value, dtype=torch.float32),
        "float64 tensor": lambda value: torch.tensor(value, dtype=torch.float64),
    }
    statistics = convert[given_as](mean), convert[given_as](std)
    values = torch.rand((SIZE, 2, 5), generator=torch.Generator().manual_seed(1)) * 9
    data = TensorDataset(values.to(dtype), torch.arange(SIZE))
    old = [((x - statistics[0]) / (statistics[1] + 1e-8), y) for x, y in data]
    new = WorkerSafeStandardizedDataset(data, range(SIZE), *statistics)
    assert same(new[3], old[3])
    # A division by zero gives NaN on both sides, which equals nothing: compare the bits.
    left, right = fetch_batch(new, [5, 1]), default_collate([old[5], old[1]])
    assert left is not None
    assert left[0].dtype == right[0].dtype
    assert torch.equal(torch.nan_to_num(left[0]), torch.nan_to_num(right[0]))


@pytest.mark.parametrize("shape", [(1,), (3, 1, 1), (1, 4, 1), (2, 3, 1, 1)], ids=str)
def test_statistics_with_axes_broadcast_against_each_sample(shape: tuple[int, ...]) -> None:
    data = tensor_data(5, (1, 4, 6))
    mean, std = torch.rand(shape), torch.rand(shape) + 0.5
    old, new = (
        StandardizedSubset(data, range(5), mean, std),
        WorkerSafeStandardizedDataset(data, range(5), mean, std),
    )
    assert same(fetch_batch(new, [4, 0, 2]), default_collate([old[4], old[0], old[2]]))


def test_reading_a_batch_asks_a_user_dataset_for_each_sample_once() -> None:
    asked = []

    class Counting(PairDataset):
        def __getitem__(self, index: Any) -> Any:
            asked.append(index)
            return super().__getitem__(index)

    dataset = WorkerSafeStandardizedDataset(Counting(9, shape=()), range(9), 0.0, 1.0)
    load_batch(dataset, [3, 3, 8], None, default_collate)
    assert asked == [3, 3, 8]


@pytest.mark.parametrize("shuffle", [False, True])
def test_loaders_that_are_not_ours_read_batches_too_and_get_the_same_samples(shuffle: bool) -> None:
    base = TensorDataset(torch.rand(30, 1, 12, 13), torch.arange(30))
    standardized = WorkerSafeStandardizedDataset(Subset(base, range(2, 28)), list(range(24)), 0.5, 0.25)
    dataset = WorkerSafeAugmentedDataset(standardized, {"spec_augment_params": {}, "gaussian_noise_params": {}})

    class OneByOne(WorkerSafeAugmentedDataset):
        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    single = OneByOne(standardized, {"spec_augment_params": {}, "gaussian_noise_params": {}})

    def epochs(of: Any) -> Any:
        torch.manual_seed(3)
        random.seed(3)
        return [list(DataLoader(of, batch_size=5, shuffle=shuffle)) for _ in range(2)]

    assert same(epochs(dataset), epochs(single))


def test_a_subclass_that_replaces_getitem_is_read_by_it_under_any_loader() -> None:
    dataset = Shifted(tensor_data(SIZE), list(range(SIZE)), 0.5, 0.25)
    expected = default_collate([dataset[index] for index in range(4)])
    assert same(next(iter(DataLoader(dataset, batch_size=4))), expected)


@pytest.mark.parametrize("second", [torch.uint8, torch.float64, torch.bfloat16, torch.float32], ids=str)
def test_parts_of_other_dtypes_are_computed_in_their_own(second: torch.dtype) -> None:
    first = torch.arange(8.0).reshape(4, 2)
    parts = ConcatDataset([TensorDataset(rows, torch.arange(4)) for rows in (first, first.to(second))])
    inner = WorkerSafeStandardizedDataset(parts, [0, 4, 1, 5, 2, 6], 1.0, 2.0)
    for dataset in (inner, WorkerSafeStandardizedDataset(inner, [0, 1, 2, 3, 5], 0.3, 0.7)):
        loader = BatchedDataLoader(dataset, batch_size=2)
        assert same(list(loader), list(DataLoader(dataset, 2)))


class Known(Dataset[Any]):
    """A dataset of the user's that takes names, and numbers of any size."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return torch.full((1, 2, 3), float(len(str(index)))), len(str(index))


@pytest.mark.parametrize("batches", [[["a", "bc"], ["d"]], [[2**70, 3], [1]]], ids=["names", "large numbers"])
def test_indices_that_give_no_random_key_are_the_dataset_s(batches: list[Any]) -> None:
    dataset = WorkerSafeAugmentedDataset(Known(), {"p": 0.0})
    expected = list(DataLoader(Known(), batch_sampler=batches))
    assert same(list(BatchedDataLoader(dataset, batch_sampler=batches)), expected)


def test_a_sampler_may_give_iterators_in_place_of_lists() -> None:
    def batches() -> list[Any]:
        return [iter([0, 3]), (index for index in (1,))]

    expected = list(DataLoader(tensor_data(SIZE), batch_sampler=batches()))
    assert same(list(BatchedDataLoader(tensor_data(SIZE), batch_sampler=batches())), expected)


def test_a_batch_sampler_may_give_iterators_to_pytorchs_loader_of_a_list() -> None:
    dataset = WorkerSafeSequenceDataset([1, 2, 3])
    found = list(DataLoader(dataset, batch_sampler=[map(int, [0, 1]), iter([2])]))  # type: ignore[arg-type]
    assert same(found, [torch.tensor([1, 2]), torch.tensor([3])])


class Counted:
    """Indices of a batch that count how often their length is read."""

    def __init__(self) -> None:
        self.lengths = 0

    def __len__(self) -> int:
        self.lengths += 1
        return 2

    def __getitem__(self, place: int) -> int:
        return [3, 1][place]


@pytest.mark.parametrize(
    ("kind", "dataset"),
    [
        (DataLoader, PairDataset(SIZE)),
        (BatchedDataLoader, PairDataset(SIZE)),
        (BatchedDataLoader, WorkerSafeAugmentedDataset(tensor_data(SIZE), {"p": 1.0})),
    ],
    ids=["PyTorch", "own dataset", "augmented"],
)
def test_the_length_of_a_batchs_indices_is_not_read(kind: Callable[..., Any], dataset: Any) -> None:
    indices = Counted()
    ((x, _),) = kind(dataset, batch_sampler=[indices])
    assert len(x) == 2
    assert indices.lengths == 0


@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader])
def test_a_batch_that_is_no_list_is_refused_when_it_is_read(kind: Any) -> None:
    loader = kind(WorkerSafeAugmentedDataset(tensor_data(SIZE)), batch_sampler=[5])
    with pytest.raises(TypeError):
        list(loader)


class Compared:
    """A ``collate_fn`` whose comparison with another object is an error."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __call__(self, samples: Any) -> Any:
        return default_collate(samples)


def test_a_collate_function_of_the_user_is_not_compared() -> None:
    (batch,) = OptimalDataLoaderFactory.create_loader(tensor_data(SIZE), batch_size=SIZE, collate_fn=Compared())
    assert same(batch, default_collate([tensor_data(SIZE)[i] for i in range(SIZE)]))
