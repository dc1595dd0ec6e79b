"""Watches what training takes from its loaders, without changing it: the PROBE pass."""

from __future__ import annotations

import hashlib
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from chirp_migrate.verify.fingerprint import tensor_hash
from chirp_migrate.verify.interception import Interception
from chirp_migrate.verify.spec import PassRecord

__all__ = ["STATISTICS", "LoaderWatch", "is_random", "sample_statistics"]

STATISTICS = (
    "mean",
    "standard deviation",
    "share of zeros",
    "share of constant time frames",
    "share of constant frequency bins",
    "mean step between time frames",
)
"""What is computed for each augmented sample: enough to show gates, mask widths, noise level and clamping."""

_FETCHES = 6
_FETCHED_SAMPLES = 3


class LoaderWatch:
    """Context manager that records each walk over each loader (see :class:`PassRecord`).

    The global random state is the same with and without it. A data set that keeps a random generator of its own
    is advanced by the few extra fetches of :func:`is_random`, on both sides alike.
    """

    def __init__(self) -> None:
        self.interception = Interception(self._watch)
        self._records: list[PassRecord] = []
        self._digests: dict[int, list[bytes]] = {}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._current: PassRecord | None = None
        self._hook: Any = None

    def __enter__(self) -> LoaderWatch:
        self.interception.__enter__()
        self._hook = register_module_forward_hook(self._saw_output)
        return self

    def __exit__(self, *exception: object) -> None:
        self._hook.remove()
        self.interception.__exit__(*exception)

    def take(self) -> list[PassRecord]:
        """The passes since the last call, in the order in which they began; a pass of no batch is one too."""
        for record in self._records:
            digests = self._digests.get(id(record), [])
            record.contents = hashlib.sha256(b"".join(sorted(digests))).hexdigest()[:16]
        taken, self._records, self._digests, self._current = self._records, [], {}, None
        self._numbers.clear()
        self._count = 0
        return taken

    def saw_batch(self, record: PassRecord, batch: Any) -> None:
        """Add a batch to its record; the batch is only read."""
        tensors = list(_tensors(batch))
        size = _batch_size(tensors)
        per_sample = [tensor for tensor in tensors if tensor.ndim > 0 and tensor.shape[0] == size]
        rows = [
            hashlib.sha256("".join(tensor_hash(tensor[index]) for tensor in per_sample).encode()).digest()
            for index in range(size)
        ]
        others = "".join(tensor_hash(tensor) for tensor in tensors if tensor.ndim == 0 or tensor.shape[0] != size)
        record.batches.append(hashlib.sha256(b"".join(rows) + others.encode()).hexdigest()[:16])
        self._digests.setdefault(id(record), []).extend(rows)
        record.samples += size
        counts = Counter(record.labels)
        for tensor in tensors:
            if tensor.ndim == 1 and not tensor.is_floating_point():
                counts.update(str(label) for label in tensor.tolist())
        record.labels = dict(counts)
        if record.random:
            for tensor in tensors:
                if tensor.is_floating_point() and tensor.ndim in (3, 4):
                    record.statistics += sample_statistics(tensor)
        self._current = record

    def _watch(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if loader not in self._numbers:
            self._numbers[loader] = self._count
            self._count += 1
        sampler = getattr(loader, "sampler", None)
        record = PassRecord(
            loader=self._numbers[loader],
            role="train" if torch.is_grad_enabled() else "validation",
            random=is_random(loader),
            shuffled=isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)),
            whole=_names_each_sample_once(sampler),
        )
        self._records.append(record)
        return _WatchedIterator(self, loader, start(), record)

    def _saw_output(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        if self._current is None or not isinstance(module, _Loss):
            return
        if isinstance(output, torch.Tensor) and output.numel() == 1:
            self._current.losses.append(float(output.detach()).hex())


class _WatchedIterator(Iterator[Any]):
    """The loader's own iterator, with each batch shown to the watch as it passes."""

    def __init__(self, watch: LoaderWatch, loader: Any, iterator: Iterator[Any], record: PassRecord) -> None:
        self._watch = watch
        self._loader = loader
        self._iterator = iterator
        self._record = record

    def __next__(self) -> Any:
        with self._watch.interception.inside(self._loader):
            batch = next(self._iterator)
        self._watch.saw_batch(self._record, batch)
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def is_random(loader: Any) -> bool:
    """Whether the loader's data set gives other values when the same sample is fetched again.

    A few samples are fetched several times, as the loader would collate them, and the global random state is put
    back. An augmentation that leaves 20 % of samples alone at each of two stages is missed once in 10^12.
    Data sets without an index (iterable ones) are taken as not random, so that they are compared bit by bit.
    """
    dataset = loader.dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return False
    collate = loader.collate_fn
    with _random_state_kept():
        for index in range(min(_FETCHED_SAMPLES, len(dataset))):
            fetched = {
                tuple(tensor_hash(tensor) for tensor in _tensors(collate([dataset[index]]))) for _ in range(_FETCHES)
            }
            if len(fetched) > 1:
                return True
    return False


def sample_statistics(batch: torch.Tensor) -> list[list[float]]:
    """The :data:`STATISTICS` of each sample of a (B, F, T) or (B, C, F, T) batch, as one row each."""
    x = batch.detach().to("cpu", torch.float32)
    if x.ndim == 3:
        x = x.unsqueeze(1)
    pixels = (1, 2, 3)
    constant_frames = (x.amax(dim=2) == x.amin(dim=2)).float().mean(dim=(1, 2))
    constant_bins = (x.amax(dim=3) == x.amin(dim=3)).float().mean(dim=(1, 2))
    steps = (x[..., 1:] - x[..., :-1]).abs().mean(dim=pixels)
    columns = (
        x.mean(dim=pixels),
        x.std(dim=pixels),
        (x == 0).float().mean(dim=pixels),
        constant_frames,
        constant_bins,
        steps,
    )
    rows: list[list[float]] = torch.stack(columns, dim=1).tolist()
    return rows


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of a batch, in order; other leaves stand for nothing that training computes with."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _batch_size(tensors: list[torch.Tensor]) -> int:
    """Length of the first tensor that has one."""
    return next((tensor.shape[0] for tensor in tensors if tensor.ndim > 0), 0)


def _names_each_sample_once(sampler: Any) -> bool:
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    python, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
