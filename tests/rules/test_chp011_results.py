"""Code whose label scans were rewritten gives the same results, errors, reads and random draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

PAIR = Path(__file__).parents[2] / "fixtures" / "rules" / "CHP011"


class Logged:
    """A user's dataset: notes every read, draws random numbers, and may fail."""

    def __init__(self, length: int, fails: int | None = None) -> None:
        self.length, self.fails = length, fails
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if index == self.fails:
            raise OSError(f"sample {index} cannot be read")
        if not -self.length <= index < self.length:
            raise IndexError(index)
        self.read.append(int(index))
        return torch.zeros(2) + random.random(), torch.tensor(int(index) % 3 + random.randint(0, 1))


class Reused(Logged):
    """Gives one buffer again and again."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.label = torch.zeros((), dtype=torch.long)

    def __getitem__(self, index: Any) -> Any:
        x, label = super().__getitem__(index)
        return x, self.label.copy_(label)


class Named(Logged):
    """Has labels of which some are no numbers."""

    def __getitem__(self, index: Any) -> Any:
        x, label = super().__getitem__(index)
        return x, "owl" if index == 1 else str(label.item())


def tensors() -> TensorDataset:
    return TensorDataset(torch.rand(6, 2), torch.tensor([0, 2, 1, 2, 0, 1]))


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": tensors,
    "subset": lambda: Subset(tensors(), [5, 3, 3, 1, 0]),
    "concatenation": lambda: ConcatDataset([tensors(), Subset(tensors(), [2, 1])]),
    "user's": lambda: Logged(6),
    "user's, failing": lambda: Logged(6, fails=4),
    "user's, one buffer": lambda: Reused(6),
    "user's, names": lambda: Named(6),
    "too short": lambda: Logged(3),
    "list": lambda: [(None, torch.tensor(n)) for n in (2, 0, 1, 1, 2)],
    "triples": lambda: TensorDataset(torch.rand(6, 2), torch.tensor([0, 2, 1, 2, 0, 1]), torch.rand(6)),
    "empty": lambda: TensorDataset(torch.rand(0, 2), torch.zeros(0, dtype=torch.long)),
    "nothing": lambda: None,
}


def functions(name: str) -> dict[str, Any]:
    """What a module of the pair defines."""
    scope: dict[str, Any] = {}
    exec(compile((PAIR / name).read_text(encoding="utf-8"), name, "exec"), scope)
    return scope


def runs(scope: dict[str, Any], dataset: Any) -> Iterator[tuple[Any, ...]]:
    """Results of every function on a dataset: values or error, what was read, and the random state after it."""
    calls: dict[str, Callable[[], Any]] = {
        "listed": lambda: scope["listed"](dataset, [1, 0, 2]),
        "listed, by array": lambda: scope["listed"](dataset, np.array([-1, 2])),
        "in_calls": lambda: scope["in_calls"](dataset, iter([3, 1, 1])),
        "in_calls, none": lambda: scope["in_calls"](dataset, []),
        "iterated": lambda: scope["iterated"](dataset, {0: 0.5, 1: 1.0, 2: 2.0, 3: 4.0}),
        "loops": lambda: scope["loops"](dataset, (0, 4), 4),
        "engine": lambda: scope["Engine"](dataset, [2, 0]).labels(),
    }
    for name, call in calls.items():
        random.seed(3)
        try:
            result = repr(call())
        except Exception as error:  # the migrated code is to raise what the original raises
            result = f"{type(error)}: {error}"
        yield name, result, list(getattr(dataset, "read", ())), random.getstate()


@pytest.mark.parametrize("kind", DATASETS)
def test_the_rewritten_code_does_the_same(kind: str) -> None:
    original, migrated = functions("before.py"), functions("after.py")
    assert "read_labels" in migrated and "read_labels" not in original
    for left, right in zip(runs(original, DATASETS[kind]()), runs(migrated, DATASETS[kind]()), strict=True):
        assert left == right


class Turning(Logged):
    """Reading a sample turns the indices around that it is read by."""

    indices: list[int]

    def __getitem__(self, index: Any) -> Any:
        self.indices.reverse()
        return super().__getitem__(index)


def test_indices_are_computed_between_samples_as_before() -> None:
    seen = []
    for name in ("before.py", "after.py"):
        random.seed(3)
        engine = functions(name)["Engine"](Turning(6), [4, 1, 0, 2])
        engine.dataset.indices = engine.indices
        seen.append((engine.labels(), engine.dataset.read))
    assert seen[0] == seen[1]
    assert seen[0][1][:4] == [4, 0, 0, 4]
