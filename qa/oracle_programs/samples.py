"""Samples of every kind, and dataset classes that list, standardise or transform these samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from chirpid_patch import (
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    augments_samples,
    lists_samples,
    standardizes_samples,
)

from .parts import Pair, Plain, log


class Tagged(Tensor):
    """A tensor of a user's class."""


def _filled(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[int], Tensor]:
    return lambda index: torch.arange(index, index + int(np.prod(shape)), dtype=torch.float32).reshape(shape).to(dtype)


def _video(index: int) -> Tensor:
    return _filled(2, 3, 2, 2)(index).contiguous(memory_format=torch.channels_last)


#: Kind of a part of a sample → function that creates the part from an index.
PARTS: dict[str, Callable[[int], Any]] = {
    "float32": _filled(3),
    "float64": _filled(3, dtype=torch.float64),
    "float16": _filled(3, dtype=torch.float16),
    "int64": _filled(3, dtype=torch.int64),
    "int32": _filled(3, dtype=torch.int32),
    "uint8": _filled(3, dtype=torch.uint8),
    "bool": _filled(3, dtype=torch.bool),
    "complex": _filled(3, dtype=torch.complex64),
    "conjugate": lambda index: _filled(3, dtype=torch.complex64)(index).conj(),
    "0-dim": lambda index: torch.tensor(index / 4),
    "0-dim int": lambda index: torch.tensor(index),
    "longer": _filled(4),
    "empty": _filled(0, 3),
    "large": _filled(300, 60),
    "grad": lambda index: _filled(3)(index).requires_grad_(),
    "parameter": lambda index: nn.Parameter(_filled(3)(index), requires_grad=index % 2 == 0),
    "tagged": lambda index: _filled(3)(index).as_subclass(Tagged),
    "sparse": lambda index: _filled(3)(index).to_sparse(),
    "transposed": lambda index: _filled(3, 2)(index).t(),
    "expanded": lambda index: torch.tensor([index / 2]).expand(3),
    "channels last": lambda index: _filled(1, 3, 2, 2)(index).contiguous(memory_format=torch.channels_last)[0],
    "video": _video,
    "array32": lambda index: _filled(3)(index).numpy(),
    "array64": lambda index: _filled(3)(index).double().numpy(),
    "array of ints": lambda index: _filled(3)(index).int().numpy(),
    "array of text": lambda index: np.array([f"bird {index}"]),
    "number32": np.float32,
    "number16": np.int16,
    "truth of numpy": lambda index: np.bool_(index % 2),
    "int": int,
    "large int": lambda index: 2**63 - 2 + index,
    "float": lambda index: index / 3,
    "truth": lambda index: index % 2 == 0,
    "text": lambda index: f"bird {index}",
    "bytes": lambda index: b"x" * index,
    "none": lambda index: None,
    "pair": lambda index: (index, torch.tensor(index)),
    "dictionary": lambda index: {"a": torch.tensor(index), "b": str(index)},
}
#: Parts that PyTorch's loader cannot send reliably to other processes without collating them.
_UNSENT = ("conjugate", "grad", "parameter", "sparse", "tagged", "none")

ARRANGED: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "single": lambda x, y: x,
    "triple": lambda x, y: (x, y, 1),
    "dict": lambda x, y: {"x": x, "y": y},
    "named": Pair,
    "deep": lambda x, y: (x, {"y": [y, (x, y)]}),
}


def draw_samples(lot: random.Random, n: int) -> tuple[Any, ...]:
    """Return the name of a random list of ``n`` samples (see ``listed``), mostly of one kind."""

    def kinds() -> tuple[str, ...]:
        return tuple(lot.choices(sorted(PARTS), k=lot.choice([1, 1, 2, 2, 3])))

    arranged = tuple(lot.choices(sorted(ARRANGED), k=lot.choice([1, 1, 1, 1, 2])))
    if lot.random() < 0.4:
        arranged = ("tuple",)
    return "listed", lot.choice(["declared", "shipped"]), n, arranged, kinds(), kinds(), lot.randrange(100)


def is_sent_apart(named: tuple[Any, ...]) -> bool:
    """Return whether PyTorch's workers can send samples of a dataset without collating them."""
    return not any(f"'{part}'" in str(named) for part in (*_UNSENT, "Reusing"))


# -- classes as users write them


class Listed(Dataset[Any]):
    """A dataset of the samples in a list."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]


class Scaled(Dataset[Any]):
    """A dataset that standardises the samples of another dataset."""

    def __init__(self, dataset: Any, indices: Any, mean: Any, std: Any) -> None:
        self.dataset, self.indices = dataset, indices
        self.mean, self.std = mean, std

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.dataset[self.indices[index]]
        return (x - self.mean) / (self.std + 1e-8), y


class Changed(Dataset[Any]):
    """A dataset that applies the user's function to the samples of another dataset."""

    def __init__(self, dataset: Any, transforms: list[Any]) -> None:
        self.dataset = dataset
        self.transforms = transforms

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.dataset[index]
        for transform in self.transforms:
            x = transform(x)
        return x, y


@lists_samples("data")
class DeclaredListed(Listed):
    """A declared dataset of the samples in a list."""

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]


@standardizes_samples(dataset="dataset", indices="indices", mean="mean", std="std", eps=1e-8)
class DeclaredScaled(Scaled):
    """A declared dataset that standardises the samples of another dataset."""

    def __getitem__(self, index: Any) -> Any:
        x, y = self.dataset[self.indices[index]]
        return (x - self.mean) / (self.std + 1e-8), y


@augments_samples(dataset="dataset", transforms={"transform": None})
class DeclaredChanged(Dataset[Any]):
    """A declared dataset that applies one transform."""

    def __init__(self, dataset: Any, transforms: list[Any]) -> None:
        self.dataset = dataset
        (self.transform,) = transforms

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.dataset[index]
        return self.transform(x), y


class Reusing(Plain):
    """A dataset that returns the same memory for every sample."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.memory = torch.zeros(3)

    def read(self, index: int) -> Any:
        return self.memory.copy_(self.values[index]), index


class Drawn:
    """A transform of the user that uses random numbers."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, x: Any) -> Any:
        log("transform")
        draws = {"python": random.random, "numpy": np.random.rand, "torch": lambda: float(torch.rand(()))}
        return x + float(draws[self.source]())


class Failing:
    """A transform of the user that fails for some samples."""

    def __call__(self, x: Any) -> Any:
        log("transform")
        if float(x.sum()) % 5 > 3:
            raise ArithmeticError("too loud")
        return x


class Counted:
    """A transform of the user that counts its calls, and sometimes returns another dtype or shape."""

    def __init__(self, varies: bool) -> None:
        self.calls, self.varies = 0, varies

    def __call__(self, x: Any) -> Any:
        log("transform")
        self.calls += 1
        if self.varies and self.calls % 4 == 0:
            x = x.double() if self.calls % 8 else x[:1]
        return x + self.calls


class InPlace:
    """A transform of the user that writes to its argument."""

    def __call__(self, x: Any) -> Any:
        log("transform")
        return x.add_(1)


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "draws python": lambda: Drawn("python"),
    "draws numpy": lambda: Drawn("numpy"),
    "draws torch": lambda: Drawn("torch"),
    "fails": Failing,
    "counts": lambda: Counted(varies=False),
    "varies": lambda: Counted(varies=True),
    "in place": InPlace,
}
STATISTICS: dict[str, tuple[Any, Any]] = {
    "numbers": (0.5, 2.0),
    "tensors": (torch.tensor(0.5), torch.tensor(2.0)),
    "double": (torch.tensor(0.5, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)),
    "numpy": (np.float32(0.5), np.float64(2.0)),
    "channels": (torch.tensor([0.5, 1.0, 0.0]), torch.tensor([2.0, 1.0, 3.0])),
}

#: Kinds of rows that a ``TensorDataset`` can have.
ROWS = (
    "float32", "float64", "float16", "int64", "uint8", "bool", "0-dim", "large", "transposed", "video", "channels last",
    "conjugate", "complex", "empty", "expanded",
)  # fmt: skip

#: Kinds of tensors and arrays whose rows are the samples themselves.
BARE: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "float64": lambda rows: rows,
    "float32": lambda rows: rows.astype(np.float32),
    "uint8": lambda rows: rows.astype(np.uint8),
    "text": lambda rows: rows.astype(str),
    "other byte order": lambda rows: rows.astype(">f4"),
    "read-only": lambda rows: np.broadcast_to(rows, rows.shape),
    "transposed": np.asfortranarray,
    "backwards": lambda rows: rows[::-1],
    "numbers": lambda rows: rows[:, 0, 0].astype(np.int64),
    "short numbers": lambda rows: rows[:, 0, 0].astype(np.float32),
    "masked": np.ma.masked_array,
    "tensor": torch.from_numpy,
    "numbers in a tensor": lambda rows: torch.from_numpy(rows)[:, 0, 0],
    "grad": lambda rows: torch.from_numpy(rows).requires_grad_(),
    "parameter": lambda rows: torch.nn.Parameter(torch.from_numpy(rows)),
}


# -- functions that create datasets


def listed(how: str, n: int, arranged: tuple[str, ...], xs: tuple[str, ...], ys: tuple[str, ...], seed: int) -> Any:
    """Return a dataset of a list of samples, which may have several kinds. ``how`` is one of ``_LISTED``."""
    lot = random.Random(seed)
    samples = [
        ARRANGED[lot.choice(arranged)](PARTS[lot.choice(xs)](place), PARTS[lot.choice(ys)](place)) for place in range(n)
    ]
    return {"by hand": Listed, "declared": DeclaredListed, "shipped": WorkerSafeSequenceDataset}[how](samples)


def rows(n: int, kind: str) -> TensorDataset:
    """Return a ``TensorDataset`` whose rows are of one kind of ``ROWS``."""
    parts = [PARTS[kind](place) for place in range(n)]
    x = torch.stack(parts) if parts else torch.zeros(0, 3)
    if kind in ("transposed", "video") and parts:
        strides = (parts[0].numel(), *parts[0].stride())
        x = torch.empty_strided(x.shape, strides).copy_(x)
    elif kind == "expanded" and parts:
        x = x[:, :1].expand(n, 3)
    elif kind == "conjugate":
        x = x.conj() if parts else x
    return TensorDataset(x, torch.arange(n))


def bare(n: int, kind: str) -> Any:
    """Return a tensor or array of one kind of ``BARE``, with n rows of shape (2, 3) or n numbers."""
    return BARE[kind](np.arange(n * 6, dtype=np.float64).reshape(n, 2, 3))


def scaled(how: str, dataset: Any, indices: Any, statistic: str) -> Any:
    """Return a dataset that is standardised; ``how`` is one of ``_LISTED``."""
    made = {"by hand": Scaled, "declared": DeclaredScaled, "shipped": WorkerSafeStandardizedDataset}[how]
    return made(dataset, indices, *STATISTICS[statistic])


def changed(how: str, dataset: Any, transform: str) -> Any:
    """Return a dataset with a transform of the user; ``how`` is one of ``_LISTED``."""
    transforms = [TRANSFORMS[transform]()]
    if how == "shipped":
        return WorkerSafeAugmentedDataset(dataset, transforms=transforms)
    return (Changed if how == "by hand" else DeclaredChanged)(dataset, transforms)


_WRAPPERS = (Scaled, Changed, DeclaredChanged, WorkerSafeStandardizedDataset, WorkerSafeAugmentedDataset)


def held_by(dataset: Any) -> Iterator[Any]:
    """Yield the objects that a dataset of this module contains, such as its data and transforms; else nothing."""
    if isinstance(dataset, Listed | WorkerSafeSequenceDataset):
        yield dataset.data
    elif isinstance(dataset, _WRAPPERS):
        yield dataset.dataset
        yield getattr(dataset, "indices", None)
        transforms = getattr(dataset, "transforms", None) or [getattr(dataset, "transform", None)]
        yield [vars(one) for one in transforms if one is not None]
