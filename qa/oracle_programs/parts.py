"""The parts of the generated programs: datasets, samplers and functions as users write them.

Every method call of the user's objects is written to the file ``LOG``, with the kind of process that makes the call.
"""

from __future__ import annotations

import os
import random
import threading
import time
from array import array
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Sampler, Subset, TensorDataset, get_worker_info

LOG = "LOADER_ORACLE_LOG"
Pair = namedtuple("Pair", "x y")
CACHE: dict[int, Any] = {}
#: Classes of `chirpid_patch`, and the classes of users in ``samples`` that they replace.
BY_HAND = {
    "WorkerSafeAugmentedDataset": "Changed",
    "WorkerSafeSequenceDataset": "Listed",
    "WorkerSafeStandardizedDataset": "Scaled",
}


def log(call: str) -> None:
    """Write one line about a call."""
    info = get_worker_info()
    line = f"{'main' if info is None else 'worker'} {call}\n"
    handle = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


class OwnError(Exception):
    """A user's exception that cannot be created from a message alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


ERRORS = {
    "value": ValueError("bad sample"),
    "os": OSError("unable to open shared memory object"),
    "timeout": TimeoutError("Too many open files"),
    "runtime": RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."),
    "key": KeyError("robin"),
    "stop": StopIteration(),
    "own": OwnError(3, "text"),
    "eof": EOFError("received 0 items of ancdata"),
    "import": ImportError("no such codec"),
}


class Plain(Dataset[Any]):
    """A dataset of pairs: a tensor and a number."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.values = torch.arange(n * 3, dtype=torch.float32).reshape(n, 3)

    def __len__(self) -> int:
        log("len")
        return self.n

    def __getitem__(self, index: Any) -> Any:
        log(f"get {index}")
        if not -self.n <= index < self.n:
            raise IndexError(index)
        return self.read(int(index))

    def read(self, index: int) -> Any:
        """Return a copy of a sample. Otherwise, the main process and the dataset of a worker would share its memory."""
        return self.values[index].clone(), index


class Raising(Plain):
    """A dataset that raises errors for some samples."""

    def __init__(self, n: int, error: str, every: int) -> None:
        super().__init__(n)
        self.error, self.every = error, every

    def read(self, index: int) -> Any:
        if index % self.every == self.every - 1:
            raise ERRORS[self.error]
        return super().read(index)


class Slow(Plain):
    """A dataset that reads some samples slowly."""

    def read(self, index: int) -> Any:
        if index % 5 == 0:
            time.sleep(0.004)
        return super().read(index)


class Drawing(Plain):
    """A dataset that uses the global random generators."""

    def __init__(self, n: int, source: str, since: int) -> None:
        super().__init__(n)
        self.source, self.since = source, since

    def read(self, index: int) -> Any:
        noise = 0.0
        if index >= self.since:
            draws = {
                "python": random.random,
                "numpy": np.random.rand,
                "torch": lambda: float(torch.rand(1, dtype=torch.float64)),
            }
            noise = float(draws[self.source]())
        return self.values[index] + noise, index


class OwnGenerators(Plain):
    """A dataset that uses random generators in its attributes."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.torch = torch.Generator().manual_seed(1)
        self.numpy = np.random.default_rng(1)

    def read(self, index: int) -> Any:
        return self.values[index] + torch.rand(1, generator=self.torch), self.numpy.random()


class Counting(Plain):
    """A dataset that counts its reads in an attribute, a list and an array."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.reads, self.seen, self.counts = 0, [0], np.zeros(40_000, dtype=np.int64)

    def read(self, index: int) -> Any:
        self.reads += 1
        self.seen[0] += 1
        self.counts[index * 1000] += 1
        return self.values[index].clone(), self.reads + self.seen[0] + int(self.counts.sum())


class CachesOnClass(Plain):
    """A dataset that caches samples in its class."""

    kept: dict[int, int] = {}  # noqa: RUF012

    def read(self, index: int) -> Any:
        return self.values[index].clone(), self.kept.setdefault(index, len(self.kept))


class CachesInModule(Plain):
    """A dataset that caches samples in a global variable."""

    def read(self, index: int) -> Any:
        return self.values[index].clone(), CACHE.setdefault(index, len(CACHE))


class HoldsFile(Plain):
    """A dataset that opens a file at the first read and keeps it open."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.file: Any = None

    def read(self, index: int) -> Any:
        if self.file is None:
            self.file = open(__file__, "rb")  # noqa: SIM115, PTH123
        here = self.file.tell()
        self.file.read(3)
        return self.values[index].clone(), here

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "file": None}


class HoldsIterator(Plain):
    """A dataset that adds values from an iterator."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.iterator = iter(range(10**6))

    def read(self, index: int) -> Any:
        return self.values[index].clone(), next(self.iterator)


class HoldsLock(Plain):
    """A dataset that cannot be pickled."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.lock = threading.Lock()

    def read(self, index: int) -> Any:
        with self.lock:
            return super().read(index)


class ImportsLazily(Plain):
    """A dataset that imports a module at the first read."""

    def read(self, index: int) -> Any:
        import this_is_lazy  # type: ignore[import-not-found]  # the runner writes this module

        return self.values[index].clone(), this_is_lazy.VALUE


class ManyAtOnce(Plain):
    """A dataset with ``__getitems__``."""

    def __getitems__(self, indices: Any) -> list[Any]:
        log(f"many {list(map(int, indices))}")
        return [(self.values[int(index)] + 1, index) for index in indices]


class Dynamic(Plain):
    """A dataset that returns values for attributes that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        log(f"attribute {name}")
        raise AttributeError(name)


class Shapes(Plain):
    """A dataset with samples of one of many kinds, such as dictionaries, texts or tensors of different lengths."""

    def __init__(self, n: int, kind: str) -> None:
        super().__init__(n)
        self.kind = kind

    def read(self, index: int) -> Any:
        x = self.values[index].clone()
        return {
            "dict": {"x": x, "deep": {"y": index, "name": f"bird {index}"}},
            "named": Pair(x, index),
            "text": f"bird {index}",
            "number": index / 2,
            "numpy": (x.numpy() + 1, np.int16(index)),
            "list": [x, [x * 2, index]],
            "ragged": (torch.zeros(index % 3 + 1), index),
            "none": (x, None),
            "bytes": b"x" * (index % 4),
            "double": (x.double(), torch.tensor(index, dtype=torch.int32)),
            "strided": (x.expand(2, 3).t(), index),
        }[self.kind]


class Stream(IterableDataset[Any]):
    """An iterable dataset. If ``shares`` is True, each worker reads only its share of the samples."""

    def __init__(self, n: int, shares: bool) -> None:
        self.n, self.shares = n, shares

    def __iter__(self) -> Iterator[Any]:
        log("iter")
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if self.shares and info is not None else (0, 1)
        return iter([torch.tensor([number, number + 1]) for number in range(first, self.n, step)])


class TensorsAgain(TensorDataset):
    """A subclass of ``TensorDataset`` that only counts its reads."""

    def __len__(self) -> int:
        log("len")
        return super().__len__()


class TensorsOtherwise(TensorDataset):
    """A subclass of ``TensorDataset`` that reads its samples itself."""

    def __getitem__(self, index: Any) -> Any:
        log(f"get {index}")
        return tuple(tensor[index] * 2 for tensor in self.tensors)


class TensorsShorter(TensorDataset):
    """A ``TensorDataset`` whose length is smaller than its number of rows."""

    def __len__(self) -> int:
        return super().__len__() // 2


class TensorsComputed(TensorDataset):
    """A ``TensorDataset`` that computes its tensors at every access."""

    @property
    def tensors(self) -> Any:
        log("tensors")
        return tuple(tensor + 1 for tensor in self.held)

    @tensors.setter
    def tensors(self, tensors: Any) -> None:
        self.held = tensors


class TensorsWithAnyAttribute(TensorDataset):
    """A ``TensorDataset`` that returns values for attributes that it does not have."""

    def __getattr__(self, name: str) -> Any:
        log(f"attribute {name}")
        raise AttributeError(name)


class TensorsRecordingAccess(TensorDataset):
    """A ``TensorDataset`` that records which attributes are accessed."""

    def __getattribute__(self, name: str) -> Any:
        if name == "tensors":
            log(f"attribute {name}")
        return super().__getattribute__(name)


class TensorsBackwards(TensorDataset):
    """A ``TensorDataset`` whose objects have their own function to read many samples."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.__getitems__ = self.many

    def many(self, indices: Any) -> list[Any]:
        """Return the samples, the last one first."""
        log(f"many {list(map(int, indices))}")
        return [self[index] for index in reversed(indices)]


#: Kinds of datasets over tensors.
TENSORS: tuple[type[TensorDataset], ...] = (
    TensorDataset, TensorsAgain, TensorsShorter, TensorsOtherwise, TensorsComputed, TensorsWithAnyAttribute,
    TensorsRecordingAccess, TensorsBackwards,
)  # fmt: skip


def tensors(n: int, kind: str = "TensorDataset") -> Any:
    """Return a dataset of tensors."""
    made = next(one for one in TENSORS if one.__name__ == kind)
    return made(torch.arange(n * 4, dtype=torch.float32).reshape(n, 2, 2), torch.arange(n))


class Index:
    """An object of a user's class that is used as an index."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"Index({self.place})"

    def __index__(self) -> int:
        log(f"index {self.place}")
        return self.place


class OwnIndices:
    """A sequence of indices in a user's class. If ``draws`` is True, each access returns a random index."""

    def __init__(self, places: list[int], draws: bool) -> None:
        self.places, self.draws = places, draws

    def __len__(self) -> int:
        log("indices len")
        return len(self.places)

    def __getitem__(self, place: Any) -> int:
        log(f"indices {int(place)}")
        found = self.places[place]  # raises an error at the end
        return random.choice(self.places) if self.draws else found


class ListedIndices(list[int]):
    """A list of indices that records accesses."""

    def __getitem__(self, place: Any) -> Any:
        log(f"indices {int(place)}")
        return super().__getitem__(place)


class Labelled:
    """Numbers that are found by labels and not by positions, as in a column of a table."""

    def __init__(self, places: list[int]) -> None:
        self.places = dict(zip(reversed(range(len(places))), places, strict=True))

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[int]:
        return iter(self.places.values())

    def __getitem__(self, label: Any) -> int:
        return self.places[label]


class ComputedSubset(Subset[Any]):
    """A ``Subset`` that computes its indices at every access."""

    @property
    def indices(self) -> Any:
        log("indices")
        return self.places

    @indices.setter
    def indices(self, places: Any) -> None:
        self.places = places


#: Kind of indices → function that creates the indices of a subset or sampler from positions.
INDICES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "tensor": lambda places: torch.tensor(places, dtype=torch.int64),
    "numbers": lambda places: [
        (int, np.int64, np.uint8, torch.tensor)[turn % 4](place) for turn, place in enumerate(places)
    ],
    "negative": lambda places: [place - max(places) - 1 for place in places],
    "column": lambda places: torch.tensor(places, dtype=torch.int64).reshape(-1, 1),
    "mixed": lambda places: [torch.tensor([place]) if place % 5 == 4 else place for place in places],
    "bytes": lambda places: torch.tensor(places, dtype=torch.uint8),
    "mask": lambda places: np.array(places) % 2 == 0,
    "truths": lambda places: [place % 2 == 0 for place in places],
    "small array": lambda places: np.array(places, dtype=np.int16),
    "object array": lambda places: np.array(places, dtype=object),
    "float array": lambda places: np.array(places, dtype=np.float64),
    "compact": lambda places: array("l", places),
    "beyond": lambda places: [place + place // 4 for place in places],
    "far below": lambda places: [place - 2 * max(places) - 1 for place in places],
    "text": lambda places: [str(place) for place in places],
    "queue": deque,
    "dict": lambda places: dict(enumerate(places)),
    "ordered dict": lambda places: OrderedDict((len(places) - 1 - turn, place) for turn, place in enumerate(places)),
    "labelled": Labelled,
    "short dict": lambda places: dict(enumerate(places[1:], 1)),
    "objects": lambda places: [Index(place) for place in places],
    "own": lambda places: OwnIndices(places, draws=False),
    "drawn": lambda places: OwnIndices(places, draws=True),
    "listed": ListedIndices,
    "computed": list,
}
#: Kinds with which a dataset looks up values by its own index.
LOOKED_UP = sorted({*INDICES} - {"computed"})
#: Kinds by which the samples of a subset are gathered.
GATHERED = ("list", "tuple", "array", "tensor", "numbers", "negative", "mixed", "small array", "compact")


def subset(dataset: Any, indices: str) -> Any:
    """Return a subset of every second sample, beginning with the last sample.

    ``indices`` is the kind of its indices.
    """
    kind = ComputedSubset if indices == "computed" else Subset
    return kind(dataset, INDICES[indices](list(range(len(dataset)))[::-2]))


class JoinedShorter(ConcatDataset[Any]):
    """A ``ConcatDataset`` with half the length. Negative indices count from the end of this half."""

    def __len__(self) -> int:
        log("len")
        return super().__len__() // 2


def joined(first: Any, second: Any, shorter: bool) -> Any:
    """Return two datasets, one after the other."""
    return (JoinedShorter if shorter else ConcatDataset)([first, second])


#: Methods of PyTorch's datasets that a program may replace, or add, after the import.
REPLACED = {
    f"{kind.__name__}.{method}": (kind, method)
    for kind in (TensorDataset, Subset, ConcatDataset)
    for method in ("__len__", "__getitem__", "__getitems__")
}


def replace_method(name: str) -> None:
    """Replace or add the method ``name`` of a dataset class of PyTorch.

    The new ``__len__`` returns half the length. The new ``__getitems__`` returns the samples in reverse order. The new
    ``__getitem__`` only records its calls.
    """
    kind, method = REPLACED[name]
    original = getattr(kind, method, None)

    def replaced(dataset: Any, *arguments: Any) -> Any:
        log(f"replaced {name}")
        if original is None:
            indices: list[Any] = list(*arguments)
            return [dataset[index] for index in reversed(indices)]
        found = original(dataset, *arguments)
        if method == "__getitem__":
            return found
        return found // 2 if method == "__len__" else found[::-1]

    setattr(kind, method, replaced)


class Own(Sampler[int]):
    """A sampler that counts its uses, and may use random numbers or fail."""

    def __init__(self, n: int, draws: bool, fails_at: int | None) -> None:
        self.n, self.draws, self.fails_at = n, draws, fails_at

    def __len__(self) -> int:
        log("sampler len")
        return self.n

    def __iter__(self) -> Iterator[int]:
        log("sampler iter")
        for place in range(self.n):
            if place == self.fails_at:
                raise LookupError("sampler of the user")
            yield int(torch.randint(self.n, ())) if self.draws else self.n - 1 - place


class OwnBatches(Sampler[Any]):
    """A batch sampler whose batches are lists, tuples, tensors or generators."""

    def __init__(self, n: int, kind: str, repeats: bool) -> None:
        self.n, self.kind, self.repeats = n, kind, repeats

    def __len__(self) -> int:
        log("sampler len")
        return (self.n + 2) // 3

    def __iter__(self) -> Iterator[Any]:
        log("sampler iter")
        for start in range(0, self.n, 3):
            batch = list(range(start, min(start + 3, self.n)))
            if self.repeats:
                batch[-1] = batch[0]
            yield INDICES[self.kind](batch)


def as_list(samples: Any) -> Any:
    """Return the samples without collating them."""
    return list(samples) if isinstance(samples, list) else samples


def drawing_collate(samples: Any) -> Any:
    """Return the number of samples, and two random numbers."""
    log("collate")
    return len(samples), float(torch.rand(1)), random.random()


def failing_collate(samples: Any) -> Any:
    """Collate, but fail for batches of one sample."""
    if len(samples) == 1:
        raise ArithmeticError("one is not enough")
    return torch.utils.data.default_collate(samples)


class OwnBatch:
    """A batch of a user's class."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples


def own_batch(samples: Any) -> OwnBatch:
    """Collate samples into an object of a user's class."""
    return OwnBatch(samples)


COLLATE = {"list": as_list, "draws": drawing_collate, "fails": failing_collate, "own": own_batch}


def seeds_worker(worker_id: int) -> None:
    """Seed a worker as PyTorch's documentation recommends."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def marks_worker(worker_id: int) -> None:
    """Set an attribute of the dataset in the worker."""
    info = get_worker_info()
    assert info is not None
    name = type(info.dataset).__name__
    log(f"init {worker_id} of {info.num_workers} with {BY_HAND.get(name, name)}")


def failing_worker(worker_id: int) -> None:
    """Fail in the second worker."""
    if worker_id == 1:
        raise PermissionError("no device left")


def pinned_worker(worker_id: int) -> None:
    """Bind the worker to one CPU."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


INIT = {"seeds": seeds_worker, "marks": marks_worker, "fails": failing_worker, "pins": pinned_worker}
