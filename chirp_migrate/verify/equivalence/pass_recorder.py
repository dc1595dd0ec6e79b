"""Record one iteration over a loader (a pass): hashes and statistics of each batch, and a summary of the pass."""

from __future__ import annotations

from collections import Counter
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

from chirp_migrate.training.watch.nested_datasets import NestedDataset, dataset_length, nested_datasets
from chirp_migrate.training.watch.samples import (
    Hash,
    add_tensor_to_hash,
    has_random_samples,
    leaves_by_position,
    short_hash,
    tensors_in_batch,
)
from chirp_migrate.verify.equivalence.augmentation_statistics import (
    LoadedSample,
    compare_with_unaugmented,
    count_equally_augmented_pairs,
    find_masks,
    sample_statistics,
)
from chirp_migrate.verify.equivalence.fingerprint import describe_dataset
from chirp_migrate.verify.equivalence.first_difference import encode_sample_values
from chirp_migrate.verify.equivalence.picklability import why_not_picklable
from chirp_migrate.verify.spec import LoaderPassTrace
from chirpid_patch.randomness.random_states import restore_generators_after


@dataclass
class PassRecorder:
    """The recording of one iteration over a loader (a pass).

    Attributes:
        loader: the loader over which the training iterates in this pass.
        record: the record of the pass, which :meth:`add_batch` and :meth:`finish` fill.
        base: the innermost dataset of the loader, such as the dataset in a ``Subset``.
        plain: the dataset inside the loader's dataset that yields the samples without augmentation; None if the loader
            does not augment, or if there is no such dataset.
        drawn: the indices that the sampler yielded, one list for each iteration over the sampler. For one pass with
            workers, PyTorch may call ``iter(sampler)`` twice. It then uses only the second iteration.
        batches: the samples of the pass, one list for each batch.
    """

    loader: Any
    record: LoaderPassTrace
    base: NestedDataset
    plain: NestedDataset | None
    drawn: list[list[Any]] = field(default_factory=list)
    batches: list[list[LoadedSample]] = field(default_factory=list)

    @classmethod
    def begin(cls, loader: Any, number: int, names: dict[int, str]) -> PassRecorder:
        """Begin the record of an iteration over a loader, before the iteration begins.

        The method reads samples, which may change the state of random generators. The caller must restore this state.

        Args:
            number: number of the loader, counted from 0 in the order of first use.
            names: dictionary, ``id`` of an innermost dataset → text that identifies the dataset. The method adds an
                entry for the dataset of this pass.
        """
        sampler = getattr(loader, "sampler", None)
        dataset = loader.dataset
        samples = dataset_length(dataset) if hasattr(dataset, "__getitem__") else None
        by_index = samples is not None and not isinstance(dataset, IterableDataset)
        top_down = nested_datasets(dataset) if by_index else [NestedDataset(dataset)]
        base = top_down[-1].dataset
        if by_index and id(base) not in names:
            names[id(base)] = describe_dataset(base)
        random = by_index and has_random_samples(dataset, loader.collate_fn) is True
        record = LoaderPassTrace(
            loader=number,
            role="train" if torch.is_grad_enabled() else "validation",
            random=random,
            shuffled=isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)),
            whole=_yields_each_sample_once(sampler),
            drop_last=bool(loader.drop_last),
            available=-1 if samples is None else samples,
            base=names[id(base)] if by_index else "",
            unpicklable=why_not_picklable(loader),
        )
        below = top_down[1:] if random else []
        plain = next((level for level in below if has_random_samples(level.dataset, loader.collate_fn) is False), None)
        return cls(loader, record, top_down[-1], plain)

    def add_batch(self, batch: Any) -> None:
        """Add the hash, the size, the labels and the statistics of a batch to the record."""
        record = self.record
        leaves = leaves_by_position(batch).values()
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        record.unseen = sorted({*record.unseen, *map(_type_name, filterfalse(_is_compared, leaves))})
        size = next((tensor.shape[0] for tensor in tensors if tensor.ndim > 0), 0)
        rows = _row_hashes(tensors, size)
        whole = Hash(b"".join(rows))
        for tensor in tensors:
            if tensor.ndim == 0 or tensor.shape[0] != size:
                add_tensor_to_hash(whole, tensor)
        record.batches.append(whole.hexdigest()[:16])
        record.sizes.append(size)
        record.samples += size
        samples = [LoadedSample(content) for content in rows]
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
            record.sketches.append(encode_sample_values(tensors))

    def finish(self, before: PassRecorder | None) -> None:
        """Complete the record after the last batch, with the indices and the hash of all samples.

        Args:
            before: the previous iteration over a loader with the same purpose (training or validation) and a dataset of
                the same length; None if there is no such iteration. The method uses this iteration to check whether
                augmentation repeats its random numbers in every epoch.
        """
        record = self.record
        samples = [sample for batch in self.batches for sample in batch]
        record.contents = short_hash(b"".join(sorted(sample.content for sample in samples)))  # for any order of samples
        indices = [sample.index for sample in samples if sample.index is not None]
        record.indices = indices if len(indices) == len(samples) else []
        try:
            record.base_indices = [self.base.index(index) for index in record.indices]
        except (TypeError, IndexError, KeyError):
            record.base_indices = []
        plain = [sample.plain for sample in samples if sample.plain is not None]
        if plain and len(plain) == len(samples):
            record.plain_contents = short_hash(b"".join(sorted(plain)))
        if record.random:
            earlier = before.batches if before is not None and before.record.random else None
            record.repeats = count_equally_augmented_pairs(self.batches, earlier)

    def _indices_of(self, number: int, size: int) -> list[int]:
        """Return the dataset indices of the samples in batch ``number``; an empty list if the indices are not known."""
        drawn: list[Any] = next((one for one in reversed(self.drawn) if one), [])
        if number >= len(drawn) or not getattr(self.loader, "in_order", True):
            return []
        task = drawn[number]
        try:
            indices = [as_int(task)] if self.loader.batch_sampler is None else [as_int(index) for index in task]
        except TypeError:
            return []
        return indices if len(indices) == size else []

    def _record_augmented(self, samples: list[LoadedSample], tensors: list[torch.Tensor]) -> None:
        size = len(samples)
        images = [t for t in tensors if t.ndim > 1 and t.shape[0] == size and t.dtype != torch.bool]
        if not images or not size:
            return
        for image in images:
            self.record.statistics += sample_statistics(image)
        plain = self._unaugmented_batch(samples)
        pairs = [
            compare_with_unaugmented(image, before) for image, before in zip(tensors, plain, strict=False)
            if any(image is other for other in images) and image.shape == before.shape
        ]  # fmt: skip
        for statistics, _ in pairs:
            self.record.paired += statistics
        if pairs:
            for sample, content in zip(samples, _row_hashes(plain, size), strict=True):
                sample.plain = content
        for sample, draw in zip(samples, pairs[0][1] if pairs else find_masks(images[0]), strict=True):
            sample.draw = draw

    def _unaugmented_batch(self, samples: list[LoadedSample]) -> list[torch.Tensor]:
        """Read the samples of a batch again without augmentation, and return their tensors.

        The result is an empty list if the samples cannot be read.
        """
        indices = [sample.index for sample in samples if sample.index is not None]
        if self.plain is None or len(indices) < len(samples):
            return []
        with restore_generators_after():
            try:
                plain = [self.plain.dataset[self.plain.index(index)] for index in indices]
            except (TypeError, IndexError, KeyError):
                return []
            return tensors_in_batch(self.loader.collate_fn(plain))


def _row_hashes(tensors: list[torch.Tensor], size: int) -> list[bytes]:
    """Return one hash for each sample of a batch, computed from its row in every tensor that has ``size`` rows."""
    per_sample = [tensor for tensor in tensors if tensor.ndim > 0 and tensor.shape[0] == size]
    hashes = []
    for row in range(size):
        one = Hash()
        for tensor in per_sample:
            add_tensor_to_hash(one, tensor[row])
        hashes.append(one.digest())
    return hashes


def _is_compared(leaf: Any) -> bool:
    """Return whether ``verify`` compares a value in a batch.

    ``verify`` compares tensors, arrays of plain values, numbers, strings, bytes and None.
    """
    if isinstance(leaf, np.ndarray):
        return not leaf.dtype.hasobject
    return leaf is None or isinstance(leaf, (torch.Tensor, np.generic, int, float, complex, str, bytes))


def _type_name(leaf: Any) -> str:
    kind = type(leaf)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _yields_each_sample_once(sampler: Any) -> bool:
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)
