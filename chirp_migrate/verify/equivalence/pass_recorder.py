"""The record of one pass over a loader, as the training code sees it: data of each batch, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import filterfalse
from operator import index as as_int
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from chirp_migrate.training.watch.samples import contents
from chirp_migrate.verify.equivalence.augmentation_statistics import (
    Sample,
    count_equal_draws,
    draws_of,
    pair_statistics,
    sample_statistics,
)
from chirp_migrate.verify.equivalence.fingerprint import Hash, add_tensor, tensor_hash
from chirp_migrate.verify.equivalence.first_difference import sketch
from chirp_migrate.verify.equivalence.identity import DatasetLevel, length, name_of, nested_datasets
from chirp_migrate.verify.equivalence.picklability import why_not_picklable
from chirp_migrate.verify.spec import PassTrace
from chirpid_patch.randomness.random_states import restored_generators

__all__ = ["PassRecorder"]

_FETCHES = 6
_FETCHED_SAMPLES = 3


@dataclass
class PassRecorder:
    """A running pass over a loader.

    Attributes:
        base: the innermost dataset of the loader.
        plain: the dataset with the samples before augmentation; None if nothing is random, or there is no such dataset.
        drawn: the indices from each iteration over the sampler; PyTorch's iterators with workers begin two iterations
            and use the last.
        batches: the samples of each batch.
    """

    loader: Any
    record: PassTrace
    base: DatasetLevel
    plain: DatasetLevel | None
    drawn: list[list[Any]] = field(default_factory=list)
    batches: list[list[Sample]] = field(default_factory=list)

    @classmethod
    def begin(cls, loader: Any, number: int, names: dict[int, str]) -> PassRecorder:
        """Begin the record of a loader before it is iterated over; the caller restores the random state.

        Args:
            names: names of datasets that do not change from pass to pass, by id; those of this pass are added.
        """
        sampler = getattr(loader, "sampler", None)
        dataset = loader.dataset
        samples = length(dataset) if hasattr(dataset, "__getitem__") else None
        by_index = samples is not None and not isinstance(dataset, IterableDataset)
        top_down = nested_datasets(dataset) if by_index else [DatasetLevel(dataset)]
        base = top_down[-1].dataset
        if by_index and id(base) not in names:
            names[id(base)] = name_of(base)
        random = by_index and _has_random_samples(dataset, loader.collate_fn) is True
        record = PassTrace(
            loader=number,
            role="train" if torch.is_grad_enabled() else "validation",
            random=random,
            shuffled=isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)),
            whole=_names_each_sample_once(sampler),
            drop_last=bool(loader.drop_last),
            available=-1 if samples is None else samples,
            base=names[id(base)] if by_index else "",
            unpicklable=why_not_picklable(loader),
        )
        below = top_down[1:] if random else []
        plain = next((level for level in below if _has_random_samples(level.dataset, loader.collate_fn) is False), None)
        return cls(loader, record, top_down[-1], plain)

    def saw(self, batch: Any) -> None:
        """Add a batch."""
        record = self.record
        leaves = contents(batch).values()
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        record.unseen = sorted({*record.unseen, *map(_type_name, filterfalse(_is_plain, leaves))})
        size = next((tensor.shape[0] for tensor in tensors if tensor.ndim > 0), 0)
        rows = _row_hashes(tensors, size)
        whole = Hash(b"".join(rows))
        for tensor in tensors:
            if tensor.ndim == 0 or tensor.shape[0] != size:
                add_tensor(whole, tensor)
        record.batches.append(whole.hexdigest()[:16])
        record.sizes.append(size)
        record.samples += size
        samples = [Sample(content) for content in rows]
        for sample, index in zip(samples, self._indices_of(len(self.batches), size), strict=False):
            sample.index = index
        self.batches.append(samples)
        counts = Counter(record.labels)
        for tensor in tensors:
            if tensor.ndim == 1 and not tensor.is_floating_point():
                counts.update(str(label) for label in tensor.tolist())
        record.labels = dict(counts)
        if record.random:
            self._record_augmented(samples, tensors)
        else:
            record.sketches.append(sketch(tensors))

    def finish(self, before: PassRecorder | None) -> None:
        """Return the summary; ``before`` is the previous pass over the same number of samples."""
        record = self.record
        samples = [sample for batch in self.batches for sample in batch]
        record.contents = _sum_of(sample.content for sample in samples)
        indices = [sample.index for sample in samples if sample.index is not None]
        record.indices = indices if len(indices) == len(samples) else []
        try:
            record.base_indices = [self.base.index(index) for index in record.indices]
        except (TypeError, IndexError, KeyError):
            record.base_indices = []
        plain = [sample.plain for sample in samples if sample.plain is not None]
        if plain and len(plain) == len(samples):
            record.plain_contents = _sum_of(plain)
        if record.random:
            earlier = before.batches if before is not None and before.record.random else None
            record.repeats = count_equal_draws(self.batches, earlier)

    def _indices_of(self, number: int, size: int) -> list[int]:
        """Return the indices of a batch; empty if they are not known."""
        drawn: list[Any] = next((one for one in reversed(self.drawn) if one), [])
        if number >= len(drawn) or not getattr(self.loader, "in_order", True):
            return []
        task = drawn[number]
        try:
            indices = [as_int(task)] if self.loader.batch_sampler is None else [as_int(index) for index in task]
        except TypeError:
            return []
        return indices if len(indices) == size else []

    def _record_augmented(self, samples: list[Sample], tensors: list[torch.Tensor]) -> None:
        size = len(samples)
        images = [t for t in tensors if t.ndim > 1 and t.shape[0] == size and t.dtype != torch.bool]
        if not images or not size:
            return
        for image in images:
            self.record.statistics += sample_statistics(image)
        plain = self._before_augmentation(samples)
        pairs = [
            pair_statistics(image, before) for image, before in zip(tensors, plain, strict=False)
            if any(image is other for other in images) and image.shape == before.shape
        ]  # fmt: skip
        for statistics, _ in pairs:
            self.record.paired += statistics
        if pairs:
            for sample, content in zip(samples, _row_hashes(plain, size), strict=True):
                sample.plain = content
        for sample, draw in zip(samples, pairs[0][1] if pairs else draws_of(images[0]), strict=True):
            sample.draw = draw

    def _before_augmentation(self, samples: list[Sample]) -> list[torch.Tensor]:
        """Return the tensors of the batch without augmentation; empty if they cannot be known."""
        indices = [sample.index for sample in samples if sample.index is not None]
        if self.plain is None or len(indices) < len(samples):
            return []
        with restored_generators():
            try:
                plain = [self.plain.dataset[self.plain.index(index)] for index in indices]
            except (TypeError, IndexError, KeyError):
                return []
            return _tensors(self.loader.collate_fn(plain))


def _has_random_samples(dataset: Any, collate: Callable[[Any], Any]) -> bool | None:
    """Return whether repeated reads of a sample yield different values; None if it contains no numbers.

    A few samples are read several times and collated as by the loader. The test misses an augmentation that skips 20 %
    of the samples at each of two stages once in 10^12.
    """
    for index in range(min(_FETCHED_SAMPLES, len(dataset))):
        try:
            batches = [_tensors(collate([dataset[index]])) for _ in range(_FETCHES)]
        except Exception:  # its loader can read it, but it cannot be read by index
            return None
        if len({tuple(map(tensor_hash, tensors)) for tensors in batches}) > 1:
            return True
    return False


def _row_hashes(tensors: list[torch.Tensor], size: int) -> list[bytes]:
    """Return one hash for each sample of a batch: of its row in every tensor that has one."""
    per_sample = [tensor for tensor in tensors if tensor.ndim > 0 and tensor.shape[0] == size]
    hashes = []
    for row in range(size):
        one = Hash()
        for tensor in per_sample:
            add_tensor(one, tensor[row])
        hashes.append(one.digest())
    return hashes


def _sum_of(hashes: Iterable[bytes]) -> str:
    """Return one hash for the samples, independent of their order."""
    return str(Hash(b"".join(sorted(hashes))).hexdigest())[:16]


def _tensors(batch: Any) -> list[torch.Tensor]:
    """Yield the tensors and arrays of a batch, in order; training does not compute with other leaves."""
    return [leaf for leaf in contents(batch).values() if isinstance(leaf, torch.Tensor)]


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a tensor, an array, a number or a text; other objects are not inspected."""
    if isinstance(leaf, np.ndarray):
        return not leaf.dtype.hasobject
    return leaf is None or isinstance(leaf, (torch.Tensor, np.generic, int, float, complex, str, bytes))


def _type_name(leaf: Any) -> str:
    kind = type(leaf)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _names_each_sample_once(sampler: Any) -> bool:
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)
