"""The three ways of drawing noise: normal, clamped, applied as often as asked, and independent where promised.

Everything is drawn from fixed keys, so that a test passes or fails for good. Where many hypotheses are tested
together, Holm's correction keeps the chance of any false alarm, for keys not yet tried, at ``LEVEL``.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import global_states, same, seed_all
from torch.utils.data import DataLoader, TensorDataset

from chirpid_patch import BatchedDataLoader, GaussianNoise, WorkerSafeAugmentedDataset
from chirpid_patch.randomness.keyed_random import hash_into_keys
from chirpid_patch.transforms.noise import NOISE_MODES, normal_noise

LEVEL = 1e-3
INDEPENDENT = ("table", "exact")
modes = pytest.mark.parametrize("mode", NOISE_MODES)

Values = np.ndarray[Any, Any]


def keys(count: int, seed: int = 0) -> Any:
    start = hash_into_keys(np.zeros(1, dtype=np.uint64), seed)
    return hash_into_keys(np.broadcast_to(start, count), np.arange(count))


# --- hypotheses, each as the probability of what was seen ------------------------------------------------------


def two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def kolmogorov_smirnov(values: Values) -> float:
    """Of the distance from N(0, 1), by Kolmogorov's limit."""
    ordered = np.sort(values)
    n = len(ordered)
    cdf = torch.special.ndtr(torch.from_numpy(ordered)).numpy()
    distance = max((np.arange(1, n + 1) / n - cdf).max(), (cdf - np.arange(n) / n).max())
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * n * (k * distance) ** 2) for k in range(1, 101))
    return float(min(max(sum(terms), 0.0), 1.0))


def table_kurtosis() -> float:
    """The fourth moment of 65,536 equally likely quantiles of the normal distribution, for unit variance."""
    quantiles = torch.special.ndtri((torch.arange(65_536, dtype=torch.float64) + 0.5) / 65_536)
    return float((quantiles**4).mean() / (quantiles**2).mean() ** 2)


def normality(values: Values, kurtosis: float = 3.0) -> dict[str, float]:
    """Probabilities under N(0, 1) of mean, variance, skewness, kurtosis, shape, and correlation of neighbours."""
    values = values.astype(np.float64)
    root = math.sqrt(len(values))
    return {
        "mean": two_sided(values.mean() * root),
        "variance": two_sided(((values**2).mean() - 1) * root / math.sqrt(2)),
        "skewness": two_sided((values**3).mean() * root / math.sqrt(15)),
        "kurtosis": two_sided(((values**4).mean() - kurtosis) * root / math.sqrt(96)),
        "shape": kolmogorov_smirnov(values),
        **{
            f"lag {lag}": two_sided(float(np.corrcoef(values[:-lag], values[lag:])[0, 1]) * root)
            for lag in (1, 2, 3, 4, 64)
        },
    }


def independence(rows: Values) -> dict[str, float]:
    """Probabilities of all correlations between rows of independent values, taken together and one by one."""
    correlations: Values = np.asarray(np.corrcoef(rows.astype(np.float64)))
    pairs = correlations[np.triu_indices(len(rows), k=1)]
    z = np.arctanh(pairs) * math.sqrt(rows.shape[1] - 3)
    count = len(z)
    return {
        "sum": two_sided(float(z.sum()) / math.sqrt(count)),
        "sum of squares": two_sided((float((z**2).sum()) - count) / math.sqrt(2 * count)),
        "largest": min(count * two_sided(float(np.abs(z).max())), 1.0),
        "shape": kolmogorov_smirnov(z),
    }


def share(seen: int, count: int, expected: float) -> float:
    """Of so many out of ``count``; a chance of 0 or 1 allows no exception."""
    if expected in (0.0, 1.0):
        return float(seen == count * expected)
    return two_sided((seen - count * expected) / math.sqrt(count * expected * (1 - expected)))


def rejected(probabilities: Mapping[Any, float]) -> list[Any]:
    """The hypotheses that Holm's procedure rejects at ``LEVEL``."""
    ordered = sorted(probabilities, key=lambda name: probabilities[name])
    small = itertools.takewhile(
        lambda item: probabilities[item[1]] <= LEVEL / (len(ordered) - item[0]), enumerate(ordered)
    )
    return [name for _, name in small]


def family(named: Mapping[Any, Mapping[str, float]]) -> dict[Any, float]:
    return {(name, kind): chance for name, chances in named.items() for kind, chance in chances.items()}


N = 100_000
SPOILT: dict[str, Callable[[Values], Values]] = {
    "too wide": lambda values: values * 1.03,
    "off centre": lambda values: values + 0.02,
    "uniform": lambda values: torch.special.ndtr(torch.from_numpy(values)).numpy() * 12**0.5 - 3**0.5,
    "heavy tails": lambda values: values * np.where(np.arange(len(values)) % 100, 0.99**0.5, 2.0),
    "coarse": lambda values: np.round(values * 16) / 16,
    "repeating": lambda values: np.repeat(values[::2], 2),
}


@pytest.mark.parametrize("how", SPOILT)
def test_the_hypotheses_have_the_power_to_notice(how: str) -> None:
    values = np.random.default_rng(0).standard_normal(N)
    assert not rejected(family({"kept": normality(values)}))
    assert rejected(family({how: normality(SPOILT[how](values))}))


def test_the_hypotheses_notice_dependent_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 2000))
    assert not rejected(independence(rows))
    assert rejected(independence(rows + 0.2 * rows[0]))
    rows[7, :200] = rows[30, :200]
    assert rejected(independence(rows))


# --- distribution -----------------------------------------------------------------------------------------------


@modes
def test_noise_is_normal(mode: str) -> None:
    kurtosis = 3.0 if mode == "exact" else table_kurtosis()
    assert kurtosis == pytest.approx(3, rel=0.01)
    drawn = {int(key): normal_noise(int(key), N, 1.0, mode) for key in keys(4)}
    assert not rejected(family({key: normality(values, kurtosis) for key, values in drawn.items()}))
    assert all(values.dtype == np.float32 and len(values) == N for values in drawn.values())


@modes
def test_noise_of_many_short_samples_is_normal(mode: str) -> None:
    # As many values as cannot all lie in distinct stretches of a pool would be no independent draws there.
    count, length = (4000, 63) if mode in INDEPENDENT else (400, 63)
    values = np.concatenate([normal_noise(int(key), length, 1.0, mode) for key in keys(count, seed=1)])
    assert not rejected(normality(values, 3.0 if mode == "exact" else table_kurtosis()))


@modes
@pytest.mark.parametrize("std", [0.02, 0.3, 5.0])
def test_noise_scales_with_std(mode: str, std: float) -> None:
    for key in (1, 2**63 + 5):
        unit, scaled = normal_noise(key, 5000, 1.0, mode), normal_noise(key, 5000, std, mode)
        np.testing.assert_allclose(scaled, unit.astype(np.float64) * std, rtol=1e-5, atol=1e-12)
    assert not normal_noise(7, 100, 0.0, mode).any()


def added(x: torch.Tensor, mode: Any, count: int, *, std: float = 0.02, p: float = 1.0, seed: int = 0) -> torch.Tensor:
    """``count`` copies of ``x``, noise added to them as a batch."""
    batch = x.expand(count, *x.shape).clone()
    GaussianNoise(std=std, p=p, mode=mode).transform_batch_(batch, keys(count, seed))
    return batch


@modes
def test_a_batch_gets_normal_noise(mode: str) -> None:
    noise = (added(torch.full((40, 50), 0.5, dtype=torch.float64), mode, 50) - 0.5) / 0.02
    assert not rejected(normality(noise.flatten().numpy(), 3.0 if mode == "exact" else table_kurtosis()))


@modes
@pytest.mark.parametrize("value", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_what_leaves_0_to_1_is_clamped_and_nothing_else(mode: str, value: float) -> None:
    std = 0.02
    x = torch.full((2000,), value, dtype=torch.float64)
    clamped, noise = added(x, mode, 20, std=std), added(torch.full_like(x, 0.5), mode, 20, std=std) - 0.5
    torch.testing.assert_close(clamped, (x + noise).clamp(0, 1), rtol=0, atol=1e-12)
    below, above = (float(torch.special.ndtr(torch.tensor(z))) for z in (-value / std, (value - 1) / std))
    count = clamped.numel()
    seen = {"below": (clamped == 0, below), "above": (clamped == 1, above)}
    assert not rejected(
        {where: share(int(hit.sum()), count, round(chance, 12)) for where, (hit, chance) in seen.items()}
    )


@modes
@pytest.mark.parametrize("p", [0.0, 0.25, 0.8, 1.0])
def test_noise_is_applied_with_probability_p_whatever_the_mode(mode: str, p: float) -> None:
    count = 5_000
    noisy = (added(torch.full((3,), 0.5), mode, count, p=p, seed=4) != 0.5).all(dim=1)
    untouched = (added(torch.full((3,), 0.5), mode, count, p=p, seed=4) == 0.5).all(dim=1)
    assert torch.equal(noisy, ~untouched)
    assert not rejected({"p": share(int(noisy.sum()), count, p)})
    # Which samples they are is the mode's business no more than how many.
    table = (added(torch.full((3,), 0.5), "table", count, p=p, seed=4) != 0.5).all(dim=1)
    assert torch.equal(noisy, table)


# --- independence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", INDEPENDENT)
def test_noise_of_different_samples_is_independent(mode: str) -> None:
    rows = np.stack([normal_noise(int(key), 4096, 1.0, mode) for key in keys(100, seed=2)])
    assert not rejected(family({"values": independence(rows), "squares": independence(rows**2)}))


@pytest.mark.parametrize("mode", INDEPENDENT)
def test_noise_of_successive_keys_is_independent(mode: str) -> None:
    rows = np.stack([normal_noise(key, 4096, 1.0, mode) for key in range(100)])
    assert not rejected(family({"values": independence(rows), "squares": independence(rows**2)}))


def stretches_in_common(rows: list[Values]) -> int:
    """Pairs of rows of which one holds, somewhere, the first eight values of the other."""
    found = 0
    for one, other in itertools.permutations(rows, 2):
        places = np.flatnonzero(one == other[0])
        found += any(np.array_equal(one[place : place + 8], other[:8]) for place in places)
    return found


@modes
def test_only_pooled_samples_share_stretches_of_noise(mode: str) -> None:
    rows = [normal_noise(int(key), 150_000, 1.0, mode) for key in keys(24, seed=3)]
    assert (stretches_in_common(rows) > 0) == (mode == "pooled")


def test_pooled_samples_that_overlap_are_the_same_noise_shifted() -> None:
    one, other = (normal_noise(key, 1000, 1.0, "pooled") for key in (5_000, 5_100))
    assert np.array_equal(one[100:], other[:-100])
    assert not np.array_equal(one[:900], other[:900])


def noisy_dataset(mode: str, n: int = 24) -> WorkerSafeAugmentedDataset:
    """Grey samples with nothing but noise, each with its number."""
    params = {"spec_augment_params": None, "gaussian_noise_params": {"std": 0.02, "p": 1.0, "mode": mode}}
    return WorkerSafeAugmentedDataset(TensorDataset(torch.full((n, 1, 32, 64), 0.5), torch.arange(n)), params)


def noise_of_epochs(loader: Any, epochs: int = 3) -> Values:
    """The noise of each sample in each epoch, in the order of the samples: (epochs, samples, values)."""
    seen = []
    for _ in range(epochs):
        batches = list(loader)
        xs, ys = (torch.cat([batch[part] for batch in batches]) for part in (0, 1))
        seen.append(xs[ys.argsort()].flatten(1))
    values: Values = (torch.stack(seen).numpy() - 0.5) / 0.02
    return values


@pytest.mark.parametrize("mode", INDEPENDENT)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (BatchedDataLoader, {"num_workers": 2}),
        (DataLoader, {}),
        pytest.param(DataLoader, {"num_workers": 2}, marks=pytest.mark.slow),
        pytest.param(DataLoader, {"num_workers": 2, "persistent_workers": True}, marks=pytest.mark.slow),
    ],
    ids=["ours", "plain", "plain workers", "plain persistent workers"],
)
def test_noise_is_independent_between_samples_epochs_and_workers(mode: str, options: Any, kind: Any) -> None:
    seed_all(6)
    noise = noise_of_epochs(kind(noisy_dataset(mode), batch_size=3, shuffle=True, **options))
    rows = noise.reshape(-1, noise.shape[-1])
    assert not rejected(independence(rows))
    assert not rejected(normality(rows.flatten(), 3.0 if mode == "exact" else table_kurtosis()))


def test_pooled_noise_of_a_sample_is_another_stretch_in_each_epoch() -> None:
    seed_all(6)
    noise = noise_of_epochs(BatchedDataLoader(noisy_dataset("pooled"), batch_size=4, shuffle=True))
    assert len(np.unique(noise.reshape(-1, noise.shape[-1])[:, :8], axis=0)) == 3 * 24


# --- determinism ------------------------------------------------------------------------------------------------


@modes
@settings(max_examples=20)
@given(
    key=st.integers(0, 2**64 - 1),
    count=st.one_of(st.integers(0, 5_000), st.just(300_001)),
    std=st.sampled_from([0.02, 1.0, 3.5]),
    others=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 300)), max_size=3),
)
def test_noise_is_determined_by_its_key_alone(
    mode: str, key: int, count: int, std: float, others: list[tuple[int, int]]
) -> None:
    first = normal_noise(key, count, std, mode).copy()
    states = global_states()
    for other, length in others:
        normal_noise(other, length, 0.7, mode)
    room = np.full(count, np.nan, dtype=np.float32)
    assert np.array_equal(normal_noise(key, count, std, mode), first)
    assert np.array_equal(normal_noise(key, count, std, mode, out=room), first)
    assert len(first) == count and np.isfinite(first).all()
    assert global_states() == states


def test_more_noise_of_a_key_begins_as_less_does() -> None:
    longest = normal_noise(11, 600_001, 1.0)
    assert all(np.array_equal(normal_noise(11, n, 1.0), longest[:n]) for n in (1, 2, 1000, 262_144, 300_001))
    assert len(np.unique(longest[:600_000].reshape(6000, 100)[:, :8], axis=0)) == 6000


@modes
def test_different_keys_give_different_noise(mode: str) -> None:
    starts = {normal_noise(int(key), 16, 1.0, mode).tobytes() for key in keys(500, seed=5)}
    assert len(starts) == 500


@modes
def test_the_number_of_workers_threads_and_batches_changes_nothing(mode: str) -> None:
    def noise(**options: Any) -> Values:
        seed_all(9)
        return noise_of_epochs(BatchedDataLoader(noisy_dataset(mode, 12), shuffle=True, **options), epochs=2)

    expected = noise(batch_size=4)
    for options in ({"batch_size": 5}, {"batch_size": 4, "num_workers": 2}, {"batch_size": 2, "prefetch_threads": 4}):
        assert np.array_equal(noise(**options), expected), options


@modes
def test_threads_that_draw_at_once_get_what_one_gets_alone(mode: str) -> None:
    count = 300_000  # more than is drawn in one step
    wanted = [(int(key), std) for key in keys(4, seed=7) for std in (0.011, 0.5)]
    drawn: list[list[Values]] = [[] for _ in range(4)]
    together = threading.Barrier(4)

    def draw(number: int) -> None:
        together.wait()
        for key, std in wanted:  # the very same keys, in step: what they shared they would spoil
            drawn[number].append(normal_noise(key, count, std, mode).copy())

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [normal_noise(key, count, std, mode) for key, std in wanted]
    for values in drawn:
        assert len(values) == len(alone) and all(map(np.array_equal, values, alone))


@modes
def test_threads_that_transform_samples_at_once_get_what_one_gets_alone(mode: Any) -> None:
    transform, samples = GaussianNoise(std=0.1, p=0.8, mode=mode), torch.rand(40, 30, 40)
    alone = [transform.transform_sample(x, key) for x, key in zip(samples, keys(40).reshape(40, 1), strict=True)]
    seen: list[Any] = [None] * 4

    def work(number: int) -> None:
        seen[number] = [
            transform.transform_sample(x, key) for x, key in zip(samples, keys(40).reshape(40, 1), strict=True)
        ]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(one, alone) for one in seen)


# --- samples ----------------------------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_every_floating_point_dtype_gets_the_same_noise_to_its_precision(mode: Any, dtype: torch.dtype) -> None:
    x = torch.rand(3, 20, 30, generator=torch.Generator().manual_seed(2))
    expected = added(x.double(), mode, 10, std=0.1, p=0.8)
    noisy = added(x.to(dtype), mode, 10, std=0.1, p=0.8)
    assert noisy.dtype == dtype and float(noisy.min()) == 0.0 and float(noisy.max()) == 1.0
    assert float((noisy.double() - expected).abs().max()) <= 2 * torch.finfo(dtype).eps + 1e-7
    transform = GaussianNoise(std=0.1, p=0.8, mode=mode)
    singly = [transform.transform_sample(x.to(dtype), keys(10)[n : n + 1]) for n in range(10)]
    assert same(list(noisy), singly)


@modes
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (2, 3, 4, 5)], ids=str)
def test_samples_of_any_shape_are_noised(mode: Any, shape: tuple[int, ...]) -> None:
    noisy = added(torch.full(shape, 0.5), mode, 3)
    assert noisy.shape == (3, *shape) and bool((noisy != 0.5).all())


@modes
def test_a_sample_is_never_written_to(mode: Any) -> None:
    x = torch.full((50,), 0.5)
    for _ in range(5):
        GaussianNoise(p=1.0, mode=mode)(x).add_(1)  # nor is the pool, through what was made of it
    again = added(x, mode, 1)
    assert bool((x == 0.5).all()) and float((again - 0.5).abs().max()) < 0.2


@modes
def test_called_on_a_sample_it_draws_its_key_from_python_random(mode: Any) -> None:
    transform, x = GaussianNoise(p=1.0, mode=mode), torch.full((50,), 0.5)
    random.seed(1)
    first, second = transform(x), transform(x)
    assert not torch.equal(first, second)
    random.seed(1)
    assert same([transform(x), transform(x)], [first, second])


# --- choosing a mode --------------------------------------------------------------------------------------------


def test_the_mode_is_table_unless_said_otherwise() -> None:
    assert GaussianNoise().mode == "table"
    x = torch.full((30,), 0.5)
    batch = x.expand(3, 30).clone()
    GaussianNoise(std=0.02, p=1.0).transform_batch_(batch, keys(3))
    assert torch.equal(batch, added(x, "table", 3))


def test_the_modes_are_different_draws() -> None:
    x = torch.full((30,), 0.5)
    assert len({added(x, mode, 1).numpy().tobytes() for mode in NOISE_MODES}) == len(NOISE_MODES)


@modes
def test_the_mode_is_told_by_repr_and_survives_copies(mode: Any) -> None:
    transform = GaussianNoise(std=0.1, p=1.0, mode=mode)
    assert repr(transform) == f"GaussianNoise(std=0.1, p=1.0, mode={mode!r})"
    x = torch.full((30,), 0.5)
    expected = transform.transform_sample(x, keys(1))
    for twin in (copy.deepcopy(transform), copy.copy(transform), pickle.loads(pickle.dumps(transform))):
        assert twin.mode == mode and torch.equal(twin.transform_sample(x, keys(1)), expected)


@modes
def test_a_mode_assigned_later_takes_effect(mode: Any) -> None:
    transform, x = GaussianNoise(p=1.0), torch.full((30,), 0.5)
    transform.mode = mode
    assert torch.equal(transform.transform_sample(x, keys(1)), added(x, mode, 1)[0])


@modes
def test_augment_params_choose_the_mode(mode: Any) -> None:
    def batches(dataset: Any) -> list[Any]:
        seed_all(3)
        return list(BatchedDataLoader(dataset, batch_size=5))

    dataset = noisy_dataset(mode)
    direct = WorkerSafeAugmentedDataset(
        dataset.base_dataset, transforms=[None, GaussianNoise(std=0.02, p=1.0, mode=mode)]
    )
    assert [transform.mode for transform in dataset.transforms if isinstance(transform, GaussianNoise)] == [mode]
    seed_all(3)
    first = batches(dataset)
    assert same(batches(pickle.loads(pickle.dumps(dataset))), first)
    assert same(batches(copy.deepcopy(dataset)), first)
    # The place in the chain is part of the key: alone in the chain it is the first, here the second.
    assert not same(batches(direct), first)
    direct.transforms = direct.transforms[1:]
    assert same(batches(direct), first)


@pytest.mark.parametrize("wrong", ["fast", "", "TABLE", None], ids=repr)
def test_a_mode_that_does_not_exist_is_a_value_error(wrong: Any) -> None:
    message = f"GaussianNoise has no mode {wrong!r}; the modes are table, exact, pooled"
    with pytest.raises(ValueError, match=message):
        GaussianNoise(mode=wrong)
    transform = GaussianNoise(p=1.0)
    transform.mode = wrong  # assigned later, it is told of when it is applied
    with pytest.raises(ValueError, match=message):
        transform(torch.rand(4))
    with pytest.raises(ValueError, match=message):
        transform.transform_batch_(torch.rand(2, 4), keys(2))
    dataset = WorkerSafeAugmentedDataset(noisy_dataset("table").base_dataset, transforms=[transform])
    with pytest.raises(ValueError, match=message):
        list(BatchedDataLoader(dataset, batch_size=4))


@pytest.mark.parametrize("switches", [{}, {"use_gaussian_noise": False}], ids=str)
def test_a_mode_that_does_not_exist_is_told_of_as_a_misspelt_parameter_is(switches: Any) -> None:
    with pytest.raises(ValueError, match="the modes are table, exact, pooled"):
        WorkerSafeAugmentedDataset(TensorDataset(), {"gaussian_noise_params": {"mode": "fast"}}, **switches)


@modes
def test_integers_get_no_noise(mode: Any) -> None:
    with pytest.raises(TypeError, match=r"needs floating-point samples, not torch\.uint8"):
        GaussianNoise(p=1.0, mode=mode)(torch.zeros(3, dtype=torch.uint8))
