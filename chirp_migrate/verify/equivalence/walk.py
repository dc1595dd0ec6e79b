"""One walk over a loader, as the training code sees it: what is noted of each batch, and summed up at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import index as as_int
from typing import Any

import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from chirp_migrate.verify.equivalence.augmentation import Draw, draws_of, pair_statistics, repeats, sample_statistics
from chirp_migrate.verify.equivalence.fingerprint import Hash, add_tensor, tensor_hash
from chirp_migrate.verify.equivalence.identity import Level, levels, name_of
from chirp_migrate.verify.equivalence.picklability import why_not_picklable
from chirp_migrate.verify.equivalence.traces import sketch
from chirp_migrate.verify.spec import Trace
from chirpid_patch.randomness.random_states import unmoved_generators

__all__ = ["Known", "Walk", "is_random"]

_FETCHES = 6
_FETCHED_SAMPLES = 3


@dataclass
class Known:
    """What need not be found out again in every walk; data sets live as long, so that their ids tell them apart.

    Attributes:
        names: of data sets that do not change from walk to walk, by id.
        rows: hashes of samples before they are augmented, by id of the data set and index.
    """

    names: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def name_of(self, dataset: Any) -> str:
        """See :func:`chirp_migrate.verify.equivalence.identity.name_of`."""
        if id(dataset) not in self.names:
            self.names[id(dataset)] = name_of(dataset)
        return self.names[id(dataset)]


@dataclass
class Walk:
    """One walk over a loader while it lasts.

    Attributes:
        base: the lowest data set under the loader's.
        plain: where the samples are before they are augmented; None when nothing is random, or they are nowhere.
        length: samples of the loader's data set, -1 when it has no length.
        drawn: what the sampler gave in each of its iterations; PyTorch's worker iterators begin two and use the last.
        contents: of each batch, its samples' hashes; ``plain_contents`` of the samples before they are augmented.
        changed: as ``contents``, ``b""`` of a sample that was left alone.
        draws, indices: of each batch, its samples' random draws and indices (empty: not known).
    """

    loader: Any
    record: Trace
    base: Level
    plain: Level | None
    length: int
    known: Known
    drawn: list[list[Any]] = field(default_factory=list)
    contents: list[list[bytes]] = field(default_factory=list)
    plain_contents: list[bytes] = field(default_factory=list)
    changed: list[list[bytes]] = field(default_factory=list)
    draws: list[list[Draw]] = field(default_factory=list)
    indices: list[list[int]] = field(default_factory=list)

    @classmethod
    def begin(cls, loader: Any, number: int, known: Known) -> Walk:
        """Look at a loader that is about to be iterated; the caller keeps the random state."""
        sampler = getattr(loader, "sampler", None)
        dataset = loader.dataset
        by_index = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        found = levels(dataset) if by_index else [Level(dataset)]
        record = Trace(
            loader=number,
            role="train" if torch.is_grad_enabled() else "validation",
            random=is_random(loader),
            shuffled=isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)),
            whole=_names_each_sample_once(sampler),
            drop_last=bool(loader.drop_last),
            available=len(dataset) if by_index else -1,
            base=known.name_of(found[-1].dataset) if by_index else "",
            unpicklable=why_not_picklable(loader),
        )
        below = found[1:] if record.random else []
        plain = next((level for level in below if not _varies(level.dataset, loader.collate_fn)), None)
        return cls(loader, record, found[-1], plain, record.available, known)

    def saw(self, batch: Any) -> None:
        """Add a batch."""
        record = self.record
        tensors = list(_tensors(batch))
        size = next((tensor.shape[0] for tensor in tensors if tensor.ndim > 0), 0)
        rows = _row_hashes(tensors, size)
        whole = Hash(b"".join(rows))
        for tensor in tensors:
            if tensor.ndim == 0 or tensor.shape[0] != size:
                add_tensor(whole, tensor)
        record.batches.append(whole.hexdigest()[:16])
        record.sizes.append(size)
        record.samples += size
        self.contents.append(rows)
        self.indices.append(self._indices_of(len(self.contents) - 1, size))
        counts = Counter(record.labels)
        for tensor in tensors:
            if tensor.ndim == 1 and not tensor.is_floating_point():
                counts.update(str(label) for label in tensor.tolist())
        record.labels = dict(counts)
        if record.random:
            self._saw_augmented(tensors, size)
        else:
            record.sketches.append(sketch(tensors))

    def finish(self, before: Walk | None) -> None:
        """Sum up into the record; ``before`` is the walk before over as many samples."""
        record = self.record
        record.contents = _sum_of(row for rows in self.contents for row in rows)
        known = all(len(row) == size for row, size in zip(self.indices, record.sizes, strict=True))
        record.indices = [index for row in self.indices for index in row] if known else []
        try:
            record.base_indices = [self.base.index(index) for index in record.indices]
        except (TypeError, IndexError, KeyError):
            record.base_indices = []
        if self.plain_contents and len(self.plain_contents) == record.samples:
            record.plain_contents = _sum_of(self.plain_contents)
        if record.random:
            old = (before.draws, before.changed, before.indices) if before is not None else None
            record.repeats = repeats(self.draws, self.changed, self.indices, old)

    def _indices_of(self, number: int, size: int) -> list[int]:
        """Indices of the batch of that number; empty when they are not known."""
        drawn: list[Any] = next((one for one in reversed(self.drawn) if one), [])
        if number >= len(drawn) or not getattr(self.loader, "in_order", True):
            return []
        task = drawn[number]
        try:
            indices = [as_int(task)] if self.loader.batch_sampler is None else [as_int(index) for index in task]
        except TypeError:
            return []
        return indices if len(indices) == size else []

    def _saw_augmented(self, tensors: list[torch.Tensor], size: int) -> None:
        record = self.record
        images = [t for t in tensors if t.ndim > 1 and t.shape[0] == size and t.dtype != torch.bool]
        if not images or not size:
            self.draws.append([])
            self.changed.append(self.contents[-1])
            return
        for image in images:
            record.statistics += sample_statistics(image)
        before = self._before_augmentation(self.indices[-1])
        pairs = [
            (image, plain) for image, plain in zip(tensors, before, strict=False)
            if any(image is one for one in images) and image.shape == plain.shape
        ]  # fmt: skip
        if not pairs:
            self.draws.append(draws_of(images[0]))
            self.changed.append(self.contents[-1])
            return
        plain_rows = self._plain_rows(before, size)
        self.plain_contents += plain_rows
        self.changed.append([b"" if a == b else a for a, b in zip(self.contents[-1], plain_rows, strict=True)])
        for place, (image, plain) in enumerate(pairs):
            statistics, draws = pair_statistics(image, plain)
            record.paired += statistics
            if place == 0:
                self.draws.append(draws)

    def _plain_rows(self, before: list[torch.Tensor], size: int) -> list[bytes]:
        """Hashes of the samples of the last batch before they were augmented."""
        assert self.plain is not None, "before is taken from it"
        keys = [(id(self.plain.dataset), self.plain.index(index)) for index in self.indices[-1]]
        if not all(key in self.known.rows for key in keys):
            self.known.rows.update(zip(keys, _row_hashes(before, size), strict=True))
        return [self.known.rows[key] for key in keys]

    def _before_augmentation(self, indices: list[int]) -> list[torch.Tensor]:
        """The tensors of the batch as it is without augmentation; none when they cannot be known."""
        if self.plain is None or not indices:
            return []
        with unmoved_generators():
            try:
                samples = [self.plain.dataset[self.plain.index(index)] for index in indices]
            except (TypeError, IndexError, KeyError):
                return []
            return list(_tensors(self.loader.collate_fn(samples)))


def is_random(loader: Any) -> bool:
    """Whether the loader's data set gives other values when the same sample is fetched again.

    A few samples are fetched several times, as the loader would collate them, and the global random state is put
    back. An augmentation that leaves 20 % of samples alone at each of two stages is missed once in 10^12.
    Data sets without an index (iterable ones) are taken as not random, so that they are compared bit by bit.
    """
    dataset = loader.dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return False
    with unmoved_generators():
        return _varies(dataset, loader.collate_fn)


def _varies(dataset: Any, collate: Callable[[Any], Any]) -> bool:
    for index in range(min(_FETCHED_SAMPLES, len(dataset))):
        fetched = {
            tuple(tensor_hash(tensor) for tensor in _tensors(collate([dataset[index]]))) for _ in range(_FETCHES)
        }
        if len(fetched) > 1:
            return True
    return False


def _row_hashes(tensors: list[torch.Tensor], size: int) -> list[bytes]:
    """One hash for each sample of a batch: of its row in every tensor that has one."""
    per_sample = [tensor for tensor in tensors if tensor.ndim > 0 and tensor.shape[0] == size]
    hashes = []
    for row in range(size):
        one = Hash()
        for tensor in per_sample:
            add_tensor(one, tensor[row])
        hashes.append(one.digest())
    return hashes


def _sum_of(hashes: Iterable[bytes]) -> str:
    """One hash for the samples in whatever order."""
    return str(Hash(b"".join(sorted(hashes))).hexdigest())[:16]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of a batch, in order; other leaves stand for nothing that training computes with."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _names_each_sample_once(sampler: Any) -> bool:
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)
