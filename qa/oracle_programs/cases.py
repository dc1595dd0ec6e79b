"""Generate random programs: a dataset, the arguments of a loader, and a way to use the loader."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import SubsetRandomSampler, WeightedRandomSampler

from . import parts, samples

#: Ways to use a loader.
USES = ("epochs", "break", "two at once", "nested", "zip", "few", "len", "again")
_SHAPES = ("dict", "named", "text", "number", "numpy", "list", "ragged", "none", "bytes", "double", "strided")


_WITHOUT_STATE = ("Plain", "Raising", "Slow", "Shapes", "ManyAtOnce", "tensors")


@dataclass(frozen=True)
class Case:
    """One program. Its parts are plain values, so that the program can be pickled and printed.

    Attributes:
        number: number from which the program is generated.
        dataset: (kind of the dataset, *arguments).
        sampler: (kind of the sampler or batch sampler, *arguments).
        options: arguments of ``DataLoader`` that are plain values.
        collate: name of the ``collate_fn`` in ``parts.COLLATE``; None for PyTorch's own function.
        init: name of the ``worker_init_fn`` in ``parts.INIT``; None for no function.
        method: start method of the workers; None for the default.
        use: the way in which the program uses the loader.
        seed: seed of the global random generators.
        generator: seed of the loader's generator; None for no generator.
        replaced: method of PyTorch that the program replaces at its start; None for no method.
        notes: remarks on the program, which do not affect the run.
    """

    number: int
    dataset: tuple[Any, ...]
    sampler: tuple[Any, ...]
    options: dict[str, Any]
    collate: str | None
    init: str | None
    method: str | None
    use: str
    seed: int
    generator: int | None = None
    replaced: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """Return the number of worker processes of the loader; 0 if the argument is not a valid number."""
        number = self.options.get("num_workers", 0)
        return number if isinstance(number, int) else 0

    @property
    def is_collated(self) -> bool:
        """Return whether PyTorch's own ``collate_fn`` collates the samples."""
        return self.collate is None and self.options.get("batch_size", 1) is not None

    @property
    def is_stream(self) -> bool:
        """Return whether the dataset is iterable and has no indices."""
        return bool(self.dataset[0] == "Stream")

    def make_dataset(self, *, ours: bool) -> Any:
        """Return the dataset.

        Args:
            ours: whether to use the classes of `chirpid_patch`; False to use the same classes written by users.
        """
        return _made(self.dataset, ours)

    def make_arguments(self, dataset: Any) -> dict[str, Any]:
        """Return the arguments of ``DataLoader`` for this dataset, except ``dataset``."""
        arguments = dict(self.options)
        if self.generator is not None:
            arguments["generator"] = torch.Generator().manual_seed(self.generator)
        if self.collate is not None:
            arguments["collate_fn"] = parts.COLLATE[self.collate]
        if self.init is not None:
            arguments["worker_init_fn"] = parts.INIT[self.init]
        if self.method is not None:
            arguments["multiprocessing_context"] = self.method
        kind, *rest = self.sampler
        n = 12 if self.is_stream else len(dataset)
        if kind == "own":
            arguments["sampler"] = parts.Own(n, *rest)
        elif kind == "batches":
            arguments["batch_sampler"] = parts.OwnBatches(n, *rest)
        elif kind == "list":
            arguments["sampler"] = parts.INDICES[rest[0]]([place % n for place in (3, 0, 0, 5, 1)] if n else [])
        elif kind == "subset":
            arguments["sampler"] = SubsetRandomSampler(range(0, n, 2), generator=arguments.get("generator"))
        elif kind == "weighted":
            arguments["sampler"] = WeightedRandomSampler([1.0] * n, n, generator=arguments.get("generator"))
        return arguments


def _made(named: tuple[Any, ...], ours: bool) -> Any:
    kind, *arguments = named
    if kind == "subset":
        return parts.subset(_made(arguments[0], ours), arguments[1])
    if kind == "joined":
        return parts.joined(_made(arguments[0], ours), _made(arguments[1], ours), arguments[2])
    if kind in ("listed", "scaled", "changed"):
        how, *arguments = arguments
        arguments.insert(0, "by hand" if how == "shipped" and not ours else how)
    if kind == "scaled":
        base = _made(arguments[1], ours)
        places = list(range(len(base)))[::-2]
        return samples.scaled(arguments[0], base, parts.INDICES[arguments[2]](places), arguments[3])
    if kind == "changed":
        return samples.changed(arguments[0], _made(arguments[1], ours), arguments[2])
    return getattr(samples if kind in _OF_SAMPLES else parts, kind)(*arguments)


_OF_SAMPLES = ("listed", "rows", "bare", "Reusing")


def _wrapped(lot: random.Random, depth: int) -> tuple[Any, ...]:
    """Return a dataset of pairs that is standardised or transformed."""
    n = lot.choice([1, 2, 5, 9, 12, 12])
    base: tuple[Any, ...] = lot.choice(
        [
            ("Drawing", n, lot.choice(["python", "numpy", "torch"]), lot.choice([0, 4])),
            ("Raising", n, lot.choice(sorted(parts.ERRORS)), lot.choice([3, 5, 7])),
            ("Reusing", n),
            ("Counting", n),
            ("ManyAtOnce", n),
            ("tensors", n, "TensorDataset"),
            ("rows", n, lot.choice(samples.ROWS)),
            ("bare", n, lot.choice(sorted(samples.BARE))),
            (*samples.draw_samples(lot, n)[:3], ("tuple",), *samples.draw_samples(lot, n)[4:]),
        ]
    )
    if depth < 2 and lot.random() < 0.3:
        base = _wrapped(lot, depth + 1)
    if lot.random() < 0.5:
        statistic, how = lot.choice(sorted(samples.STATISTICS)), lot.choice(["declared", "shipped"])
        return "scaled", how, base, lot.choice(["list", *sorted(parts.LOOKED_UP)]), statistic
    return "changed", lot.choice(["declared", "shipped", "shipped"]), base, lot.choice(sorted(samples.TRANSFORMS))


def _dataset(lot: random.Random, depth: int = 0) -> tuple[Any, ...]:
    n = lot.choice([0, 1, 2, 5, 9, 12, 12, 12, 17])
    kinds: list[tuple[Any, ...]] = [
        ("Plain", n),
        ("Raising", n, lot.choice(sorted(parts.ERRORS)), lot.choice([1, 3, 5, 7])),
        ("Raising", n, lot.choice(sorted(parts.ERRORS)), lot.choice([3, 5, 7])),
        ("Slow", n),
        ("Drawing", n, lot.choice(["python", "numpy", "torch"]), lot.choice([0, 0, 4])),
        ("Drawing", n, lot.choice(["python", "numpy", "torch"]), 0),
        ("OwnGenerators", n),
        ("Counting", n),
        ("CachesOnClass", n),
        ("CachesInModule", n),
        ("HoldsFile", n),
        ("HoldsIterator", n),
        ("HoldsLock", n),
        ("ImportsLazily", n),
        ("ManyAtOnce", n),
        ("Dynamic", n),
        ("Shapes", n, lot.choice(_SHAPES)),
        ("Shapes", n, lot.choice(_SHAPES)),
        *(("tensors", n, lot.choice(parts.TENSORS).__name__) for _ in range(4)),
        ("Stream", n, lot.random() < 0.5),
        *(3 * [("rows", n, lot.choice(samples.ROWS))]),
        *(3 * [("bare", n, lot.choice(sorted(samples.BARE)))]),
        *(samples.draw_samples(lot, n) for _ in range(5)),
        *(_wrapped(lot, depth) for _ in range(5)),
    ]
    if depth < 2:
        inner = [one for one in (_dataset(lot, depth + 1), _dataset(lot, depth + 1)) if one[0] != "Stream"]
        if inner:
            kinds += 3 * [("subset", inner[0], lot.choice(sorted(parts.INDICES)))]
        if len(inner) == 2:
            kinds += 2 * [("joined", *inner, lot.random() < 0.2)]
    return lot.choice(kinds)


def _replaced(lot: random.Random, dataset: tuple[Any, ...]) -> str | None:
    """Return the name of a method of one of PyTorch's classes in ``dataset``, or in most cases None."""
    kinds = {"tensors": "TensorDataset", "subset": "Subset", "joined": "ConcatDataset"}
    names = [
        name for part, kind in kinds.items() if f"'{part}'" in str(dataset) for name in parts.REPLACED if kind in name
    ]
    return lot.choice(names) if names and lot.random() < 0.25 else None


def make_case(number: int, slow_methods: float = 0.02) -> Case:
    """Return the program with this number. ``slow_methods`` is the share of programs with spawn or forkserver."""
    lot = random.Random(number)
    dataset, use = _dataset(lot), lot.choice(USES)
    options: dict[str, Any] = {}
    sampler: tuple[Any, ...] = ("none",)
    order = lot.choice(["none", "shuffle", "shuffle", "own", "list", "subset", "weighted", "batches"])
    if dataset[0] == "Stream" and lot.random() < 0.9:
        order = "none"
    if order == "shuffle":
        options["shuffle"] = True
    elif order == "own":
        sampler = ("own", lot.random() < 0.5, lot.choice([None, None, None, 0, 4]))
    elif order == "batches":
        sampler = ("batches", lot.choice(sorted(parts.INDICES)), lot.random() < 0.3)
    elif order == "list":
        sampler = ("list", lot.choice(sorted(parts.INDICES)))
    elif order != "none":
        sampler = (order,)
    if order != "batches" or lot.random() < 0.1:
        options["batch_size"] = lot.choice([1, 2, 3, 4, 4, 5, 100, None])
        if lot.random() < 0.3:
            options["drop_last"] = True
    if lot.random() < 0.05:
        options["shuffle"] = lot.choice([True, False, None])
    workers = lot.choice([0, 1, 1, 2, 2])
    if workers or lot.random() < 0.5:
        options["num_workers"] = workers
    method = None
    if workers or lot.random() < 0.04:
        if lot.random() < 0.4:
            options["prefetch_factor"] = lot.choice([1, 2, 3] if lot.random() < 0.9 else [0, -1, True, 0.5, 2.0, "2"])
        if lot.random() < 0.4:
            options["persistent_workers"] = True
        if lot.random() < 0.1:
            options["timeout"] = 60
        if lot.random() < 0.15:
            options["in_order"] = lot.random() < 0.5
            fails = sampler[0] == "own" and sampler[2] is not None
            if dataset[0] not in _WITHOUT_STATE or use not in ("epochs", "again", "len") or fails:
                options["in_order"] = True  # otherwise the result depends on timing
        if lot.random() < slow_methods:
            method = lot.choice(["spawn", "forkserver"])
        elif lot.random() < 0.1:
            method = "fork"
    if lot.random() < 0.02:
        options["timeout"] = lot.choice([-1, "5"])
    if lot.random() < 0.04:
        options["num_workers"] = lot.choice([-1, None, "2", 1.5, "", True, False, 0.0, 0.5])
    if lot.random() < 0.03 and order != "batches":
        options["batch_size"] = lot.choice([0, -1, True, 1.5, "2"])
    collate = lot.choice([None, None, None, None, None, *parts.COLLATE])
    if not samples.is_sent_apart(dataset):
        collate, method = None, None
        if options.get("batch_size", 1) is None:
            del options["batch_size"]
    if collate == "draws" and not options.get("in_order", True):
        collate = None
    if method is not None and any(kind in str(dataset) for kind in ("HoldsLock", "OwnGenerators")):
        method = None  # cannot be pickled (PyTorch loses a generator's state): see docs/loader.md
    return Case(
        number,
        dataset,
        sampler,
        options,
        collate=collate,
        init=lot.choice([None, None, None, *parts.INIT]) if workers else None,
        method=method,
        use=use,
        seed=lot.randrange(2**31),
        generator=lot.randrange(2**31) if lot.random() < 0.2 else None,
        replaced=_replaced(lot, dataset) if method in (None, "fork") else None,  # other workers import PyTorch again
    )
