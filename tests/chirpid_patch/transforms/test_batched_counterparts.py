"""What stands for common lambdas gives what they give, to the last bit, and lets batches be read at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    Standardize,
    WorkerSafeAugmentedDataset,
    collate_pairs,
)

SAMPLES, BATCH = 23, 5


def spectrograms(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.rand((SAMPLES, 2, 6, 7), generator=torch.Generator().manual_seed(1))
    return (values * 200).to(dtype)


class Plain(torch.utils.data.Dataset[Any]):
    """The original: one sample at a time."""

    def __init__(self, dataset: Any, transform: Callable[[Any], Any]) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        x, y = self.dataset[index]
        return self.transform(x), y


@pytest.mark.parametrize("eps", [1e-8, 0.5, None])
@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (0.4, 0.2),
        (3, 2),
        (np.float64(0.4), np.float64(0.2)),
        (np.float32(0.4), np.float32(0.2)),
        (torch.tensor(0.4), torch.tensor(0.2)),
        (torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)),
        (torch.tensor([[[0.4]], [[0.5]]]), torch.tensor([[[0.2]], [[0.3]]])),
        (torch.full((2, 1, 1), 0.4, dtype=torch.float64), 0.2),
        (torch.full((1, 2, 6, 7), 0.4), 0.2),
        (torch.full((9, 2, 6, 7), 0.4), 0.2),
    ],
    ids=["float", "int", "np64", "np32", "tensor", "double", "channels", "wider", "own-axis", "more-axes"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8], ids=str)
def test_a_batch_is_standardised_as_its_samples_are(mean: Any, std: Any, eps: float | None, dtype: torch.dtype) -> None:
    base = Subset(TensorDataset(spectrograms(dtype), torch.arange(SAMPLES)), list(range(SAMPLES))[::-1])
    divisor = std if eps is None else std + eps
    plain = DataLoader(Plain(base, lambda x: (x - mean) / divisor), batch_size=BATCH)
    ours = OptimalDataLoaderFactory.create_validation_loader(
        WorkerSafeAugmentedDataset(base, transforms=[Standardize(mean, std, eps)]), batch_size=BATCH
    )
    kept = base.dataset.tensors[0].clone()
    for expected, batch in zip(plain, ours, strict=True):
        assert batch[0].dtype == expected[0].dtype
        assert batch[0].shape == expected[0].shape
        assert torch.equal(batch[0].view(torch.uint8), expected[0].view(torch.uint8)), "to the last bit"
        assert torch.equal(batch[1], expected[1])
    assert torch.equal(base.dataset.tensors[0], kept), "the data itself stays"


def test_standardising_draws_nothing_and_takes_whatever_the_operators_take() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert Standardize(2, 4, eps=None)(np.array([4.0, 10.0])).tolist() == [0.5, 2.0]
    assert Standardize(2.0, 4.0, eps=None)(6.0) == 1.0
    assert torch.equal(torch.get_rng_state(), before)
    assert "mean=2" in repr(Standardize(2, 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_pairs_are_stacked_as_the_lambda_did(workers: int) -> None:
    dataset = TensorDataset(spectrograms(), torch.arange(SAMPLES))
    stack = lambda batch: (torch.stack([s[0] for s in batch]), torch.stack([s[1] for s in batch]))  # noqa: E731
    plain = DataLoader(dataset, batch_size=BATCH, collate_fn=stack)
    ours = BatchedDataLoader(dataset, batch_size=BATCH, collate_fn=collate_pairs, num_workers=workers)
    assert ours.worker_processes == workers
    for expected, batch in zip(plain, ours, strict=True):
        assert type(batch) is tuple
        assert torch.equal(batch[0], expected[0])
        assert torch.equal(batch[1], expected[1])
    singly = OptimalDataLoaderFactory.create_validation_loader(
        Plain(dataset, lambda x: x), batch_size=BATCH, collate_fn=collate_pairs
    )
    assert [type(batch) for batch in singly] == [tuple] * 5


def test_pairs_that_the_lambda_could_not_stack_are_still_refused() -> None:
    class Labelled(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.zeros(3), index

    loader = OptimalDataLoaderFactory.create_validation_loader(Labelled(), batch_size=BATCH, collate_fn=collate_pairs)
    with pytest.raises(TypeError):
        next(iter(loader))
