"""Labels read without their samples are the labels read with them: values, types, views, errors and random draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, RandomPairDataset, global_states, same, seed_all, tensor_data
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from chirpid_patch import (
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    iterate_labels,
    read_labels,
)

SIZE = 6


class Doubled(TensorDataset):
    """A subclass whose labels are not the tensor's rows."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x, 2 * y


class Named(TensorDataset):
    """A subclass that reads its samples as its base does."""

    title = "named"


class Head(TensorDataset):
    """A subclass that says it has fewer samples than iterating over it gives."""

    def __len__(self) -> int:
        return 2


class Relabelled(WorkerSafeStandardizedDataset):
    """A subclass of ours with samples of its own."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x, -y


class Backwards(TensorDataset):
    """A map-style dataset with an order of its own for iteration."""

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in reversed(range(len(self))))


class Stream(IterableDataset[Any]):
    """Samples that can only be iterated over."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.zeros(2), 3), (torch.zeros(2), 4)])


class Fields:
    """A sample that can be taken apart but not indexed."""

    def __iter__(self) -> Iterator[Any]:
        return iter((torch.zeros(1), 5))


LEAVES: dict[str, Callable[[], Any]] = {
    "tensors": lambda: tensor_data(SIZE),
    "subclass": lambda: Named(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "another length": lambda: Head(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "one-hot labels": lambda: TensorDataset(torch.rand(SIZE, 2), torch.rand(SIZE, 3, dtype=torch.float64)),
    "strided labels": lambda: TensorDataset(torch.rand(SIZE, 2), torch.arange(2 * SIZE, dtype=torch.uint8)[::2]),
    "labels with gradients": lambda: TensorDataset(torch.rand(SIZE), torch.rand(SIZE, requires_grad=True)),
    "three tensors": lambda: TensorDataset(torch.rand(SIZE, 2), torch.arange(SIZE), torch.rand(SIZE)),
    "one tensor": lambda: TensorDataset(torch.rand(SIZE, 2)),
    "own labels": lambda: Doubled(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "own order": lambda: Backwards(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "user dataset": lambda: PairDataset(SIZE),
    "random user dataset": lambda: RandomPairDataset(SIZE),
    "list of samples": lambda: WorkerSafeSequenceDataset([(torch.rand(2), index) for index in range(SIZE)]),
    "list of lists": lambda: WorkerSafeSequenceDataset([[torch.rand(2), index] for index in range(SIZE)]),
    "list of triples": lambda: WorkerSafeSequenceDataset([(torch.rand(2), index, 0) for index in range(SIZE)]),
    "list of texts": lambda: WorkerSafeSequenceDataset([("x", 1), ("x", 2)]),
    "list of singles": lambda: WorkerSafeSequenceDataset([(torch.rand(2), 1), (torch.rand(2),)]),
    "list of fields": lambda: WorkerSafeSequenceDataset([Fields()] * SIZE),
    "empty": lambda: TensorDataset(torch.rand(0, 2), torch.arange(0)),
}

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "subset": lambda base: Subset(base, [4, 0, 0, 2, -1]),
    "subset by array": lambda base: Subset(base, np.arange(5)[::-1]),  # type: ignore[arg-type]
    "subset by tensor": lambda base: Subset(base, torch.arange(5)),  # type: ignore[arg-type]
    "subset with a hole": lambda base: Subset(base, [1, 99, 2]),
    "concatenation": lambda base: ConcatDataset([base, tensor_data(3, seed=1), base]) if len(base) else base,
    "concatenation with user data": lambda base: ConcatDataset([tensor_data(2), base, PairDataset(2)]),
    "standardized": lambda base: WorkerSafeStandardizedDataset(base, range(5), 0.5, 0.2),
    "standardized, own samples": lambda base: Relabelled(base, [3, 1], 0.5, 0.2),
    "not augmented": lambda base: WorkerSafeAugmentedDataset(base, training=False),
    "augmented": lambda base: WorkerSafeAugmentedDataset(base, {"p": 1.0, "time_mask_param": 1, "freq_mask_param": 1}),
    "sequence": WorkerSafeSequenceDataset,
}

INDICES = st.one_of(
    st.lists(st.integers(-SIZE, SIZE - 1)),
    st.lists(st.integers(-12, 14) | st.booleans() | st.none() | st.just("0") | st.lists(st.integers(0, 2), max_size=2)),
    st.lists(st.integers(0, SIZE - 1)).map(lambda chosen: np.array(chosen, dtype=np.int64)),
    st.lists(st.integers(0, 1)).map(lambda chosen: np.array(chosen, dtype=bool)),
    st.lists(st.integers(0, SIZE - 1)).map(lambda chosen: torch.tensor(chosen, dtype=torch.int32)),
    st.lists(st.integers(0, SIZE - 1)).map(lambda chosen: torch.tensor(chosen, dtype=torch.uint8)),
    st.builds(range, st.integers(0, 9)),
)


def outcome(read: Callable[[], list[Any]]) -> tuple[Any, ...]:
    """Labels or error of a scan, where the labels lie in memory, and the random states after it."""
    seed_all(5)
    try:
        labels = read()
    except Exception as error:  # whatever a scan raises is to be raised alike
        return type(error), str(error), global_states()
    places = [label.data_ptr() if isinstance(label, Tensor) and label._is_view() else None for label in labels]
    return labels, places, global_states()


def assert_equal_scans(original: Callable[[], list[Any]], migrated: Callable[[], list[Any]]) -> None:
    """Both scans give the same labels, the same views, the same error and the same random states."""
    left, right = outcome(original), outcome(migrated)
    assert same(left[0], right[0]), (left[0], right[0])
    assert left[1:] == right[1:]


def assert_labels_of_samples(dataset: Any, indices: Any) -> None:
    """Labels that are read are those of the samples at the indices; without indices, of all samples."""
    assert_equal_scans(lambda: [dataset[i][1] for i in indices], lambda: read_labels(dataset, indices))
    assert_equal_scans(lambda: [y for _, y in dataset], lambda: read_labels(dataset))


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("indices", [[0, -1, 1, 0], [0, 99], ["0"], np.array([1, 0])], ids=str)
def test_labels_of_each_dataset_are_those_of_its_samples(leaf: str, indices: Any) -> None:
    assert_labels_of_samples(LEAVES[leaf](), indices)
    for wrapper in WRAPPERS.values():
        assert_labels_of_samples(wrapper(LEAVES[leaf]()), indices)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(sorted(LEAVES)), st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3), INDICES)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8", "ignore:Using a non-tuple sequence")
def test_labels_are_those_of_the_samples(leaf: str, wrappers: list[str], indices: Any) -> None:
    dataset = LEAVES[leaf]()
    for wrapper in wrappers:
        dataset = WRAPPERS[wrapper](dataset)
    assert_equal_scans(lambda: [dataset[i][1] for i in indices], lambda: read_labels(dataset, indices))

    def taken_apart() -> list[Any]:
        labels = []
        for i in indices:
            _, y = dataset[i]
            labels.append(y)
        return labels

    assert_equal_scans(taken_apart, lambda: read_labels(dataset, indices, unpack=True))


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sampled_from(sorted(LEAVES)), st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3))
def test_without_indices_it_is_iteration(leaf: str, wrappers: list[str]) -> None:
    dataset = LEAVES[leaf]()
    for wrapper in wrappers:
        dataset = WRAPPERS[wrapper](dataset)
    assert_equal_scans(lambda: [y for _, y in dataset], lambda: read_labels(dataset))
    assert_equal_scans(lambda: [sample[1] for sample in dataset], lambda: read_labels(dataset, unpack=False))


@pytest.mark.parametrize(
    "make",
    [
        lambda: [(0, "a"), (1, "b")],
        lambda: iter([(0, "a"), (1, "b")]),
        lambda: [(0, 1, 2)],
        lambda: [0],
        lambda: {"ab": 1},
        Stream,
        lambda: None,
    ],
)
def test_what_is_no_dataset_is_iterated_over(make: Callable[[], Any]) -> None:
    assert_equal_scans(lambda: [y for _, y in make()], lambda: read_labels(make()))
    assert_equal_scans(lambda: [sample[1] for sample in make()], lambda: read_labels(make(), unpack=False))


@pytest.mark.parametrize("dataset", [[(0, "a"), (1, "b")], {0: "ab", 1: [3, 4]}, {1: {1: 5}}, np.eye(3), None])
@pytest.mark.parametrize("indices", [[0, 1], [1], [], (i for i in ())])
def test_what_is_no_dataset_is_indexed(dataset: Any, indices: Any) -> None:
    assert_equal_scans(lambda: [dataset[i][1] for i in indices], lambda: read_labels(dataset, indices))


class TouchesX(TorchDispatchMode):
    """Counts operations on the memory of ``x``."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.memory = x.untyped_storage().data_ptr()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        self.count += any(one.untyped_storage().data_ptr() == self.memory for one in operands)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "wrappers",
    [
        [],
        ["subset"],
        ["subset by array", "subset by tensor"],
        ["standardized"],
        ["standardized", "standardized"],
        ["not augmented", "standardized", "subset"],
        ["sequence", "concatenation"],
    ],
)
def test_x_is_not_touched(wrappers: list[str]) -> None:
    base = tensor_data(SIZE)
    dataset: Any = base
    for wrapper in wrappers:
        dataset = WRAPPERS[wrapper](dataset)
    with TouchesX(base.tensors[0]) as touched:
        [dataset[i][1] for i in range(3)]
    assert touched.count >= 3
    with TouchesX(base.tensors[0]) as touched:
        read_labels(dataset, range(3))
        read_labels(dataset, np.arange(-2, 2), unpack=True)
        read_labels(dataset)
    assert touched.count == 0


def test_standardisation_is_not_computed() -> None:
    misfit = torch.zeros(5)  # broadcasts with no x of the data
    dataset = WorkerSafeStandardizedDataset(tensor_data(SIZE), range(SIZE), misfit, 1.0)
    with pytest.raises(RuntimeError):
        dataset[0]
    assert same(read_labels(dataset), list(tensor_data(SIZE).tensors[1]))


def test_user_code_is_run_once_a_sample_and_in_order() -> None:
    class Logged(Dataset[Any]):
        def __init__(self) -> None:
            self.read: list[Any] = []

        def __getitem__(self, index: Any) -> Any:
            self.read.append(index)
            return torch.zeros(1), index

    logged = Logged()
    indices = np.array([2, 0, 2])
    for dataset in (logged, Subset(logged, indices), ConcatDataset([tensor_data(1), Subset(logged, [1])])):  # type: ignore[arg-type]
        logged.read.clear()
        expected = [dataset[i][1] for i in range(2)] if dataset is not logged else [logged[i][1] for i in indices]
        original = list(logged.read)
        logged.read.clear()
        labels = read_labels(dataset, range(2)) if dataset is not logged else read_labels(logged, indices)
        assert labels == expected and logged.read == original
        assert [type(one) for one in logged.read] == [type(one) for one in original]


def test_a_loop_takes_labels_one_by_one() -> None:
    read: list[int] = []

    class Reused(Dataset[Any]):
        label = torch.zeros(())

        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return torch.zeros(1), self.label.fill_(index)

    labels = iterate_labels(Reused(), [2, 0, 1])
    assert not read and [(label.item(), len(read)) for label in labels] == [(2, 1), (0, 2), (1, 3)]


def test_indices_are_drawn_one_by_one() -> None:
    """An iterator is left where the scan stopped, and one without an end meets the error."""
    dataset = tensor_data(SIZE)
    indices = iter([0, 99, 3])
    with pytest.raises(IndexError, match="index 99 is out of bounds"):
        read_labels(dataset, indices)
    assert list(indices) == [3]


def test_labels_are_views_as_the_samples_are() -> None:
    dataset = tensor_data(SIZE)
    first, again = read_labels(dataset, [2, 2])
    assert first is not again and first._base is dataset.tensors[1]
    first.fill_(17)
    assert dataset[2][1] == 17 and again == 17


def test_tensors_that_no_longer_fit_are_read_in_full() -> None:
    dataset = TensorDataset(torch.rand(SIZE, 2), torch.arange(SIZE))
    dataset.tensors = (torch.rand(2, 2), torch.arange(SIZE))
    assert_equal_scans(lambda: [dataset[i][1] for i in range(3)], lambda: read_labels(dataset, range(3)))
    assert_equal_scans(lambda: [y for _, y in dataset], lambda: read_labels(dataset))
