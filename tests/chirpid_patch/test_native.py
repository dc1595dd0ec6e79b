"""The compiled work gives what PyTorch and NumPy give, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import same
from torch.utils.data import TensorDataset

from chirpid_patch import GaussianNoise, WorkerSafeStandardizedDataset, native
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.transforms.noise import add_noise_, normal_noise

pytestmark = pytest.mark.skipif(not native.is_available(), reason="it could not be compiled here: no C compiler")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Calls a function without the compiled module."""

    def call(function: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native, "_native", None)
            return function()

    yield call


SPECIAL = torch.tensor([0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf"), 1e-45, -1e-45, 3e38, -3e38])


def equal_with_nan(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal values, signs of zero aside; NaN equals NaN."""
    return np.array_equal(left.numpy(), right.numpy(), equal_nan=True)


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 5, 7), (1023,), (1024,), (1025,), (1, 224, 313)], ids=str)
@pytest.mark.parametrize("mode", ["table", "pooled"])
def test_noise(shape: tuple[int, ...], mode: str, without: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, keys = [0, 3, 4, 6], np.array([1, 2**64 - 1, 0, 0x9E3779B97F4A7C15], dtype=np.uint64)

    def clean() -> torch.Tensor:
        batch = torch.rand(7, *shape, generator=generator.manual_seed(0)) * 1.2 - 0.1
        flat = batch.view(-1)[: len(SPECIAL)]
        flat.copy_(SPECIAL[: len(flat)])
        return batch

    def noisy() -> torch.Tensor:
        batch = clean()
        add_noise_(batch, rows, keys, 0.25, mode)
        return batch

    compiled, numpy = noisy(), without(noisy)
    assert equal_with_nan(compiled, numpy)
    assert equal_with_nan(compiled[[1, 2, 5]], clean()[[1, 2, 5]])


def test_compiled_noise_is_the_documented_stream() -> None:
    batch = torch.full((1, 5000), 0.5)
    add_noise_(batch, [0], np.array([77], dtype=np.uint64), 0.01, "table")
    expected = (torch.full((5000,), 0.5) + torch.from_numpy(normal_noise(77, 5000, 0.01))).clamp(0, 1)
    assert torch.equal(batch[0], expected)


@settings(max_examples=60)
@given(
    mean=st.floats(-1e3, 1e3),
    std=st.floats(1e-6, 1e3),
    shape=st.sampled_from([(1,), (1, 6, 9), (2, 31, 17)]),
    data=st.data(),
)
def test_standardising(mean: float, std: float, shape: tuple[int, ...], data: Any) -> None:
    x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(3)) * 10 - 5
    x.view(-1)[: min(len(SPECIAL), x.numel())] = SPECIAL[: x.numel()]
    dataset = TensorDataset(x, torch.arange(6))
    kinds: list[Any] = [float, torch.tensor, lambda value: torch.tensor(value, dtype=torch.float64)]
    kind = data.draw(st.sampled_from(kinds))
    wrapped = WorkerSafeStandardizedDataset(dataset, [5, 0, 3, 1], kind(mean), kind(std))
    batch = fetch_batch(wrapped, [3, 0, 2])
    assert batch is not None
    expected = torch.stack([(x[row] - kind(mean)) / (kind(std) + 1e-8) for row in (1, 5, 3)])
    assert batch[0].dtype == expected.dtype
    assert equal_with_nan(batch[0], expected)


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(6, 4, 5).transpose(1, 2),
        torch.rand(6, 4, 5, dtype=torch.float64),
        torch.rand(6, 4, 5).half(),
        torch.rand(12, 4, 5)[::2],
    ],
    ids=["transposed", "float64", "float16", "strided"],
)
def test_what_is_not_plain_float32_is_left_to_pytorch(x: torch.Tensor, without: Any) -> None:
    dataset = WorkerSafeStandardizedDataset(TensorDataset(x, torch.arange(6)), range(6), 0.5, 0.25)
    read = lambda: fetch_batch(dataset, [4, 0, 2])  # noqa: E731
    assert same(read(), without(read))
    batch = torch.stack([dataset[index][0] for index in (4, 0, 2)])
    result = read()
    assert result is not None and same(result[0], batch)


def test_gradients_flow_through_noise() -> None:
    sample = torch.full((1, 8, 9), 0.5, requires_grad=True)
    GaussianNoise(std=0.01, p=1.0)(sample).sum().backward()
    assert sample.grad is not None and torch.equal(sample.grad, torch.ones(1, 8, 9))


def arrays(**changed: Any) -> tuple[Any, ...]:
    """Arguments of the compiled ``standardize_rows`` that fit, but for those ``changed``."""
    fit = {
        "batch": np.zeros((2, 3), np.float32),
        "source": np.zeros((5, 3), np.float32),
        "rows": np.array([4, 0]),
        "mean": 0.0,
        "deviation": 1.0,
    }
    return tuple({**fit, **changed}.values())


def noise_arrays(**changed: Any) -> tuple[Any, ...]:
    """The same for ``add_noise``."""
    fit = {
        "batch": np.zeros((2, 3), np.float32),
        "rows": np.array([1]),
        "keys": np.zeros(1, np.uint64),
        "table": np.zeros(65536, np.float32),
    }
    return tuple({**fit, **changed}.values())


READ_ONLY = np.zeros((2, 3), np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"rows": np.array([5, 0])}, IndexError),
        ({"rows": np.array([-1, 0])}, IndexError),
        ({"rows": np.array([0, 1, 2])}, ValueError),
        ({"rows": np.array([0, 1], np.int32)}, TypeError),
        ({"batch": np.zeros((2, 4), np.float32)}, ValueError),
        ({"batch": np.zeros((2, 3), np.float64)}, TypeError),
        ({"batch": np.zeros((4, 3), np.float32)[::2]}, ValueError),
        ({"batch": READ_ONLY}, ValueError),
        ({"source": np.zeros((5, 6), np.float32)[:, ::2]}, ValueError),
        ({"source": 12345}, TypeError),
    ],
    ids=str,
)
def test_the_compiled_work_checks_what_it_is_given(changed: dict[str, Any], error: type[Exception]) -> None:
    native._native.standardize_rows(*arrays())
    with pytest.raises(error):
        native._native.standardize_rows(*arrays(**changed))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"rows": np.array([2])}, IndexError),
        ({"keys": np.zeros(2, np.uint64)}, ValueError),
        ({"keys": np.zeros(1, np.int64)}, TypeError),
        ({"table": np.zeros(65535, np.float32)}, ValueError),
    ],
    ids=str,
)
def test_compiled_noise_checks_what_it_is_given(changed: dict[str, Any], error: type[Exception]) -> None:
    native._native.add_noise(*noise_arrays())
    with pytest.raises(error):
        native._native.add_noise(*noise_arrays(**changed))


def test_a_compiled_stretch_lies_within_its_pool() -> None:
    batch, rows = np.zeros((2, 3), np.float32), np.array([1])
    native._native.add_rows(batch, rows, np.array([7], np.uint64), np.ones(10, np.float32))
    assert batch.tolist() == [[0, 0, 0], [1, 1, 1]]
    for start, length in ((8, 10), (2**64 - 1, 10), (0, 2)):
        with pytest.raises(ValueError, match="do not fit"):
            native._native.add_rows(batch, rows, np.array([start], np.uint64), np.ones(length, np.float32))
