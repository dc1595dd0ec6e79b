"""Generators that workers copy, and worker functions that seed alike, are spoken of; nothing is rewritten."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from rule_programs import advice, dataset


@pytest.mark.parametrize(
    ("init", "getitem"),
    [
        ("self.rng = np.random.default_rng(3)", "return self.rng.normal()"),
        ("self.rng = np.random.RandomState()", "return self.rng.rand()"),
        ("self.rng = rng or random.Random(0)", "return self.rng.random()"),
        ("self.rng = torch.Generator().manual_seed(1)", "return torch.rand(3, generator=self.rng)"),
        ("g = torch.Generator()\ng.manual_seed(1)\nself.rng = g", "return torch.rand(3, generator=self.rng)"),
        ("self.rng = np.random.default_rng(3)", "return augment(i, self.rng)"),
        (
            "self.rngs = [np.random.default_rng(n) for n in range(3)]\nself.rng = np.random.default_rng()",
            "return f(self.rng)",
        ),
    ],
)
def test_a_generator_drawn_from_in_getitem_is_copied(init: str, getitem: str) -> None:
    (message,) = advice("CHP017", dataset(init, getitem))
    assert (
        "`self.rng` starts in the same state in every worker" in message
        and "the same numbers in `__getitem__`" in message
        and "get_worker_info().seed" in message
    )


def test_draws_are_found_in_what_getitem_calls() -> None:
    text = """
        class Base(Dataset):
            def __getitem__(self, i):
                return self.noise() + i

        class D(Base):
            def __init__(self):
                self.rng = np.random.default_rng(0)

            def noise(self):
                return self.rng.normal()
    """
    (message,) = advice("CHP017", text)
    assert "the same numbers in `noise`" in message


def test_an_annotated_parameter_is_a_generator() -> None:
    text = """
        class D(Dataset):
            def __init__(self, rng: np.random.Generator | None):
                self.rng = rng

            def __getitem__(self, i):
                return self.rng.normal()
    """
    assert len(advice("CHP017", text)) == 1


@pytest.mark.parametrize(
    ("init", "getitem", "more"),
    [
        ("self.x = x", "return np.random.default_rng(i).normal()", ""),
        ("self.rng = np.random.default_rng(3)\nself.x = self.rng.normal()", "return self.x", ""),
        ("self.rng = np.random.default_rng(3)", "return 1", "def shuffled(self):\n    return self.rng.permutation(3)"),
        ("self.rng = torch.Generator()", "self.rng.manual_seed(i)\nreturn torch.rand(3, generator=self.rng)", ""),
        ("self.rng = None", "self.rng = self.rng or random.Random()\nreturn self.rng.random()", ""),
        (
            "self.rng = random.Random(0)",
            "return self.rng.random()",
            "def set_epoch(self, epoch):\n    self.rng = random.Random(epoch)",
        ),
        ("self.rng = random.Random(0)", "info = tud.get_worker_info()\nreturn self.rng.random()", ""),
        ("self.rng = random.SystemRandom()", "return self.rng.random()", ""),
    ],
)
def test_generators_that_no_worker_shares_are_not_spoken_of(init: str, getitem: str, more: str) -> None:
    assert advice("CHP017", dataset(init, getitem, more=more)) == []


def test_a_generator_that_workers_replace_is_not_spoken_of() -> None:
    init = "def seed_worker(n):\n    tud.get_worker_info().dataset.rng = random.Random(torch.initial_seed())\n"
    text = dataset("self.rng = random.Random(0)", "return self.rng.random()")
    assert advice("CHP017", text + init) == []
    assert advice("CHP017", text, workers="import torch\n" + init) == []


def test_streams_may_share_their_order_but_not_their_noise() -> None:
    text = """
        class Stream(IterableDataset):
            def __init__(self, shards):
                self.shards = shards
                self.rng = random.Random(0)

            def __iter__(self):
                self.rng.shuffle(self.shards)
                for one in self.shards:
                    yield {}
    """
    assert advice("CHP017", text.format("one")) == []
    assert len(advice("CHP017", text.format("one * self.rng.random()"))) == 1


def test_generators_of_class_and_module_are_shared_too() -> None:
    text = """
        seeded = np.random.default_rng(3)
        fresh = np.random.default_rng()
        unused = np.random.default_rng(3)
        changed = np.random.default_rng(3)

        def reseed(seed):
            global changed
            changed = np.random.default_rng(seed)

        def noise():
            return fresh.normal()

        class D(Dataset):
            rng = torch.Generator()

            def __getitem__(self, i):
                return seeded.normal() + noise() + torch.rand(1, generator=self.rng) + f(unused=i) + changed.normal()
    """
    said = advice("CHP017", text)
    assert [one.partition(" ")[0] for one in said] == ["`seeded`", "`fresh`", "`rng`"]
    assert ["state in every forked worker" in one for one in said] == [False, True, False]


@pytest.mark.parametrize(
    ("function", "given", "happens"),
    [
        ("def f(n):\n    np.random.seed(0)", "f", "the same seed in every worker"),
        ("def f(n):\n    seed = cfg.seed\n    random.seed(seed)", "f", "the same seed in every worker"),
        ("", "lambda _: torch.manual_seed(SEED)", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(SEED + n)", "f", "the same seed in every epoch"),
        ("def f(n):\n    random.seed(n)", "f, persistent_workers=False", "the same seed in every epoch"),
        ("def f(n, seed):\n    random.seed(n + seed)", "partial(f, seed=SEED)", "the same seed in every epoch"),
        ("def f(rank, n):\n    random.seed(rank)", "partial(f, RANK)", "the same seed in every worker"),
        ("def f(seed):\n    random.seed(seed)", "lambda n: f(3)", "the same seed in every worker"),
        ("def f(a, b):\n    random.seed(a + b)", "lambda n: f(SEED, b=n)", "the same seed in every epoch"),
        ("def f(seed):\n    random.seed(seed)", "lambda n: f(torch.initial_seed())", None),
        ("def f(n):\n    np.random.seed(0)", "f, persistent_workers=True", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(n)", "f, persistent_workers=True", None),
        ("def f(n):\n    np.random.seed(n)", "f, **options", None),
        ("def f(n):\n    np.random.seed(torch.initial_seed() % 2**32)", "f", None),
        ("def f(n):\n    seed = torch.initial_seed() % 2**32\n    np.random.seed(seed + n)", "f", None),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0] + n)", "f", "the same seed in every epoch"),
        ("def f(n):\n    np.random.seed(int(np.random.get_state()[1][0]) + n)", "f", "the same seed in every epoch"),
        (
            "def f(n):\n    s = np.random.get_state()\n    np.random.seed(s[1][0] + n)",
            "f",
            "the same seed in every epoch",
        ),
        ("def f(n):\n    random.seed(np.random.get_state()[1][0] + n)", "f", "the same seed in every epoch"),
        ("", "lambda n: np.random.seed(np.random.get_state()[1][0] + n)", "the same seed in every epoch"),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0])", "f", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][1] + n)", "f", None),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0] + n)", "f, persistent_workers=True", None),
        ("def f(n):\n    seed_all()\n    np.random.seed(np.random.get_state()[1][0] + n)", "f", None),
        ("def f(n):\n    np.random.seed(epoch * 100 + n)", "f", None),
        ("def f(n, seed):\n    np.random.seed(seed + n)", "partial(f, seed=epoch + 1)", None),
        ("def f(n):\n    seed = 1\n    seed += read()\n    random.seed(seed)", "f", None),
        ("def f(n):\n    random.seed()", "f", None),
        ("def f(n):\n    random.seed(None)", "f", None),
        ("def f(n):\n    seed_all(3)", "f", None),
    ],
)
def test_worker_init_functions_that_seed_alike(function: str, given: str, happens: str | None) -> None:
    text = f"{function}\nloader = DataLoader(x, num_workers=2, worker_init_fn={given})\n"
    said = advice("CHP017", text)
    assert [happens in one for one in said] == [True] if happens is not None else said == []


def test_a_seed_from_the_state_of_numpy_is_named_with_the_line_that_is_right() -> None:
    text = """
        def worker_init_fn(worker_id):
            np.random.seed(np.random.get_state()[1][0] + worker_id)
    """
    (message,) = advice("CHP017", text)
    assert "`np.random.get_state()[1][0]` is always 2147483648 in workers" in message
    assert "Write `np.random.seed(torch.initial_seed() % 2**32)`" in message


class _OneNumber(torch.utils.data.Dataset[int]):
    """A sample drawn by NumPy."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return int(np.random.randint(1 << 30))


def _seed_from_state(worker_id: int) -> None:
    np.random.seed(np.random.get_state()[1][0] + worker_id)


def _seed_from_torch(worker_id: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "distinct"), [(_seed_from_state, 2), (_seed_from_torch, 4)])
def test_pytorch_draws_the_same_in_every_epoch_with_a_seed_from_the_state(
    init: Callable[[int], None], distinct: int
) -> None:
    loader = torch.utils.data.DataLoader(_OneNumber(), num_workers=2, worker_init_fn=init)
    assert len({int(number) for _ in range(2) for number in loader}) == distinct
