"""Streamed mean and deviation are those of the whole data in float64, whatever the batches."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, RandomPairDataset, global_states, seed_all, tensor_data
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from chirpid_patch import WorkerSafeStandardizedDataset, compute_standardization_stats, streaming_standardization_stats
from chirpid_patch.datasets.gather import fetch_batch


def two_pass(values: Sequence[float]) -> tuple[float, float]:
    """Mean and unbiased deviation with exact sums."""
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def labelled(x: Tensor) -> TensorDataset:
    return TensorDataset(x, torch.zeros(len(x)))


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 6)), min_size=2, max_size=60),
    st.integers(1, 70),
    st.sampled_from([0.0, 1e6, -1e9]),
)
def test_it_is_the_two_pass_result(values: list[float], batch_size: int, offset: float) -> None:
    shifted = [value + offset for value in values]
    mean, std = streaming_standardization_stats(
        labelled(torch.tensor(shifted, dtype=torch.float64)), batch_size=batch_size
    )
    assert mean.dtype == std.dtype == torch.float64 and mean.shape == std.shape == ()
    expected = two_pass(shifted)
    scale = max(map(abs, shifted))
    assert mean.item() == pytest.approx(expected[0], rel=1e-13, abs=1e-13 * scale)
    assert std.item() == pytest.approx(expected[1], rel=1e-9, abs=1e-13 * scale)


@pytest.mark.parametrize("batch_size", [1, 7, 256, 5000])
def test_a_large_mean_does_not_cancel_the_deviation(batch_size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 1e9 + torch.randn(3000, generator=generator, dtype=torch.float64)
    mean, std = streaming_standardization_stats(labelled(x), batch_size=batch_size)
    expected = two_pass(x.tolist())
    assert mean.item() == pytest.approx(expected[0], rel=1e-15)
    assert std.item() == pytest.approx(expected[1], rel=1e-9)
    naive = ((x**2).mean() - x.mean() ** 2).item()  # what a sum of squares makes of it
    assert abs(naive - 1.0) > 0.1


def test_batches_in_order_of_size_and_sorted_data_change_nothing_but_rounding() -> None:
    x = torch.rand(1000, 2, 3, generator=torch.Generator().manual_seed(1)).sort(dim=0).values
    results = [streaming_standardization_stats(labelled(x), batch_size=size) for size in (1, 3, 64, 999, 1000, 2000)]
    for mean, std in results:
        assert mean.item() == pytest.approx(x.double().mean().item(), rel=1e-13)
        assert std.item() == pytest.approx(x.double().std().item(), rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int64, torch.bool])
def test_values_are_reduced_in_float64_whatever_their_dtype(dtype: torch.dtype) -> None:
    x = (torch.rand(300, 4, generator=torch.Generator().manual_seed(2)) * 200).to(dtype)
    mean, std = streaming_standardization_stats(labelled(x), batch_size=16)
    assert mean.item() == pytest.approx(x.double().mean().item(), rel=1e-12)
    assert std.item() == pytest.approx(x.double().std().item(), rel=1e-12)


@pytest.mark.parametrize(
    "dataset",
    [
        tensor_data(40),
        Subset(tensor_data(80), range(0, 80, 2)),
        ConcatDataset([tensor_data(15), PairDataset(25, (1, 4, 6))]),
        WorkerSafeStandardizedDataset(tensor_data(40), range(39, -1, -1), 0.4, 0.3),
        PairDataset(40),
        [(float(value), 0) for value in range(40)],
        [(np.arange(value + 1), 0) for value in range(40)],
    ],
    ids=["tensors", "subset", "concatenation", "standardized", "user dataset", "numbers", "different shapes"],
)
@pytest.mark.parametrize("indices", [None, [5, 1, 1, 30], np.arange(3, 20), range(0, 40, 3), "iterator"])
def test_every_kind_of_dataset_and_of_indices(dataset: Any, indices: Any) -> None:
    chosen = range(40) if indices is None else [7, 8, 9, 2] if isinstance(indices, str) else indices
    values = torch.cat([torch.as_tensor(dataset[i][0]).double().flatten() for i in chosen])
    given_indices = iter(chosen) if isinstance(indices, str) else indices
    mean, std = streaming_standardization_stats(dataset, given_indices, batch_size=3)
    assert mean.item() == pytest.approx(values.mean().item(), rel=1e-12)
    assert std.item() == pytest.approx(values.std().item(), rel=1e-12)


def test_it_agrees_with_the_statistics_of_the_migrated_code() -> None:
    data = tensor_data(200)
    streamed = streaming_standardization_stats(data, batch_size=32)
    for one, other in zip(streamed, compute_standardization_stats(data, range(200)), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_no_random_number_is_drawn_and_every_sample_is_read_once() -> None:
    seed_all(1)
    states = global_states()
    streaming_standardization_stats(tensor_data(2000), batch_size=64)
    assert global_states() == states

    random_data = RandomPairDataset(10)
    seed_all(1)
    expected = torch.stack([random_data[i][0] for i in range(10)]).double()
    states = global_states()
    seed_all(1)
    mean, _ = streaming_standardization_stats(random_data, batch_size=4)
    assert mean.item() == pytest.approx(expected.mean().item(), rel=1e-12) and global_states() == states


@pytest.mark.parametrize(
    ("dataset", "indices", "complaint"),
    [
        (tensor_data(3), [], "no samples"),
        (tensor_data(0), None, "no samples"),
        (TensorDataset(torch.rand(3, 0), torch.rand(3)), None, "no samples"),
        (TensorDataset(torch.rand(3), torch.rand(3)), [1], "a single value"),
    ],
)
def test_too_little_data_is_told_of(dataset: Any, indices: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"at least two values, but there (is|are) {complaint}"):
        streaming_standardization_stats(dataset, indices)


def test_what_cannot_be_reduced_is_told_of() -> None:
    with pytest.raises(ValueError, match=r"batch_size.*0"):
        streaming_standardization_stats(tensor_data(3), batch_size=0)
    with pytest.raises(TypeError, match="complex"):
        streaming_standardization_stats(labelled(torch.zeros(3, dtype=torch.complex64)))
    with pytest.raises(IndexError):
        streaming_standardization_stats(tensor_data(3), [0, 3])


def test_memory_is_bounded_by_the_batch() -> None:
    class Wide(Dataset[Any]):
        """Samples made when they are read; NumPy's memory is what tracemalloc sees."""

        def __len__(self) -> int:
            return 400

        def __getitem__(self, index: int) -> Any:
            return np.full(20_000, index, dtype=np.float32), 0

    tracemalloc.start()
    try:
        streaming_standardization_stats(Wide(), batch_size=100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fetch_batch(Wide(), [0]) is None  # read one by one
    assert peak < 10 * 20_000 * 4
