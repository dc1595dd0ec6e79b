"""Datasets as worker processes are sent them, whether or not processes are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from originals import same
from torch.utils.data import ConcatDataset, Subset, TensorDataset, default_collate

from chirpid_patch import BatchedDataLoader, SpecAugment, WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.sent_copy import copy_for_workers

N = 3000


def tensors() -> TensorDataset:
    return TensorDataset(torch.arange(float(N)).reshape(N, 1, 1), torch.arange(N))


def indices(kind: Any) -> Any:
    return kind([(7 * i) % N for i in range(N)])


def nested(kind: Any = list) -> Any:
    part = WorkerSafeStandardizedDataset(Subset(tensors(), indices(kind)), indices(kind), 1.0, 2.0)
    return WorkerSafeAugmentedDataset(ConcatDataset([part, Subset(tensors(), indices(kind))]), training=False)


def lists_in(dataset: Any) -> int:
    """Lists and tuples of indices anywhere in ``dataset``."""
    parts = [dataset.__dict__.get(name) for name in ("base_dataset", "dataset")] + dataset.__dict__.get("datasets", [])
    own = isinstance(dataset.__dict__.get("indices"), list | tuple)
    return own + sum(lists_in(part) for part in parts if part is not None)


@pytest.mark.parametrize("kind", [list, tuple, lambda numbers: list(np.array(numbers))], ids=["list", "tuple", "numpy"])
def test_samples_and_batches_stay_the_same_and_lists_are_gone(kind: Any) -> None:
    dataset = nested(kind)
    twin = pickle.loads(pickle.dumps(copy_for_workers(dataset)))
    assert lists_in(dataset) == 3 and lists_in(twin) == 0
    assert same(list(twin[5]), list(dataset[5])) and len(twin) == len(dataset)
    wanted = [0, 4000, 17, -1]
    assert same(fetch_batch(twin, wanted), fetch_batch(dataset, wanted))


def test_the_users_dataset_is_left_as_it_was() -> None:
    given = indices(list)
    dataset = Subset(tensors(), given)
    assert copy_for_workers(dataset) is not dataset and dataset.indices is given


def test_indices_reach_a_users_dataset_as_the_numbers_they_were() -> None:
    class Kinds(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            return type(index).__name__

    for kind, name in ((list, "int"), (lambda numbers: list(np.array(numbers)), "int64")):
        assert copy_for_workers(Subset(Kinds(torch.zeros(N)), indices(kind)))[0] == name


@pytest.mark.parametrize(
    "given", [range(N), np.arange(N), torch.arange(N), [0, 1, 2], ["a"] * N, [2**70] * N, [True] * N]
)
def test_other_indices_stay_as_they_are(given: Any) -> None:
    twin = copy_for_workers(Subset(tensors(), given))
    assert type(twin.indices) is type(given) and list(twin.indices) == list(given)


def changes(dataset: Any) -> list[Callable[[], object]]:
    """What a training may change of its dataset, for the kinds that ``changing`` makes."""
    return [
        lambda: setattr(dataset, "training", False),
        lambda: setattr(dataset.base_dataset, "mean", 100.0),
        lambda: dataset.base_dataset.indices.__setitem__(slice(None), [0] * len(dataset)),
        lambda: setattr(dataset.base_dataset, "base_dataset", TensorDataset(torch.zeros(30, 2, 2), torch.zeros(30))),
        lambda: setattr(dataset.transforms[0], "p", 0.0),
        lambda: dataset.transforms.clear(),
    ]


def changing() -> WorkerSafeAugmentedDataset:
    data = TensorDataset(torch.rand(30, 2, 2, generator=torch.Generator().manual_seed(0)), torch.arange(30))
    return WorkerSafeAugmentedDataset(
        WorkerSafeStandardizedDataset(data, list(range(30)), 0.4, 0.3), transforms=[SpecAugment(2, 2, p=1.0)]
    )


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("persistent", [False, True])
def test_what_is_changed_while_workers_would_run_is_seen_when_they_would_see_it(number: int, persistent: bool) -> None:
    def epochs(workers: int) -> list[Any]:
        torch.manual_seed(3)
        dataset = changing()
        options = {"num_workers": 1, "persistent_workers": persistent, "in_process": not workers}
        seen = []
        with BatchedDataLoader(dataset, batch_size=5, **options) as loader:
            for epoch in range(2):
                for count, batch in enumerate(loader):
                    seen.append(batch)
                    if epoch == 0 and count == 1:
                        changes(dataset)[number]()
        return seen

    assert same(epochs(0), epochs(1))


def test_a_subclass_with_its_own_reading_is_not_touched() -> None:
    class Own(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return self.indices.index(index)

        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    dataset = Own(tensors(), indices(list))
    assert copy_for_workers(dataset) is dataset


def test_workers_get_such_a_copy_and_the_caller_keeps_his() -> None:
    dataset = Subset(tensors(), indices(list))
    batches = list(BatchedDataLoader(dataset, batch_size=1000, num_workers=1, collate_fn=require_no_list))
    assert same(batches, list(BatchedDataLoader(dataset, batch_size=1000)))
    assert type(dataset.indices) is list


def require_no_list(samples: list[Any]) -> Any:
    info = torch.utils.data.get_worker_info()
    assert info is not None and lists_in(info.dataset) == 0
    return default_collate(samples)
