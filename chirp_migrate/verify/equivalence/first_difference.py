"""Find the first difference between the batches of both versions, and check whether the seed affects the training."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from chirp_migrate.console.text import pluralize
from chirp_migrate.training.watch.samples import short_hash
from chirp_migrate.verify.spec import LoaderPassTrace

NamedDifference = tuple[str, str]
"""A tuple: name of a difference, such as ``losses-differ``, and its description."""

OTHER_SEED = 1
"""Number that is added to the seed for a second run, which shows which values depend on the seed."""

_SHOWN = 5
_RESULT = "result: "
_PER_SAMPLE = 16
_LEAST = 8
_TOLERANCE = 1e-4


def first_differences_between_passes(
    before: Sequence[LoaderPassTrace], after: Sequence[LoaderPassTrace]
) -> list[NamedDifference]:
    """Compare all iterations over loaders before and after the migration, separately for training and validation.

    The result contains only the first difference in training and the first difference in validation, because a first
    difference may be the cause of all later differences.
    """
    found: list[NamedDifference] = []
    augmented = any(record.random for record in before)
    for role in ("train", "validation"):
        old = [record for record in before if record.role == role]
        new = [record for record in after if record.role == role]
        counts = f"the number of passes over the {role} loaders changed from {len(old)} to {len(new)}"
        if len(new) < len(old):
            found.append(("epochs-missing", counts))
        elif len(new) > len(old):
            found.append(("epochs-added", counts))
        else:
            found += _first_difference_of_role(role, old, new, augmented)
    causes = [one for one in found if one[0] != "losses-differ"]
    return causes or found  # different samples cause different losses, so the losses are not reported


def _first_difference_of_role(
    role: str, old: list[LoaderPassTrace], new: list[LoaderPassTrace], augmented: bool
) -> list[NamedDifference]:
    """Find the first difference between the training iterations over loaders, or between the validation iterations.

    A pass is one iteration over a loader.

    Args:
        role: purpose of the passes to compare, ``train`` or ``validation``.
        old: records of the passes before the migration.
        new: records of the passes after the migration, as many as in ``old``.
        augmented: whether at least one pass before the migration (training or validation) has augmented samples.
    """
    for number, (a, b) in enumerate(zip(old, new, strict=True), start=1):
        difference = (
            _count_difference(a, b)
            or _randomness_difference(a, b)
            or _sample_difference(a, b, augmented)
            or _loss_difference(a, b, augmented)
        )
        if difference is not None:
            name, text = difference
            return [(name, f"{role} pass {number}: {text}")]
    if _repeat_same_order(new) and not _repeat_same_order(old):
        return [("not-shuffled", f"only after the migration, every {role} pass has the same order of samples")]
    return []


def _count_difference(a: LoaderPassTrace, b: LoaderPassTrace) -> NamedDifference | None:
    """Return the difference between two iterations over loaders in the number of samples, classes or batches.

    The result is None if all these numbers are equal.
    """
    counts = f"{a.samples} samples before, {b.samples} after"
    gone = [label for label in a.labels if label not in b.labels]
    others_stay = all(b.labels[label] == a.labels.get(label) for label in b.labels)
    if gone and b.labels and (others_stay or b.samples >= a.samples):
        each = ", ".join(f"{label} ({a.labels[label]} samples)" for label in gone[:_SHOWN])
        return "class-missing", f"after the migration, there is no sample of class {each}; {counts}"
    if b.samples < a.samples:
        return _name_shortened_epochs(a, b), f"{counts}{_describe_missing_samples(a, b)}"
    if b.samples > a.samples:
        return "samples-added", counts
    if a.sizes != b.sizes:
        first = _first_unequal(a.sizes, b.sizes)
        return (
            "batches-differ",
            f"{len(a.batches)} batches before, {len(b.batches)} after; batch {first} differs in size",
        )
    if b.drop_last and not a.drop_last and not a.sizes:  # the sizes differ from run to run, and are not compared
        name = "validation-drops-samples" if b.role == "validation" else "training-drops-samples"
        return name, "only after the migration, the loader omits an incomplete last batch (drop_last)"
    return None


def _name_shortened_epochs(a: LoaderPassTrace, b: LoaderPassTrace) -> str:
    if b.role == "validation":
        return "validation-drops-samples"
    whole_batches = a.sizes[: len(b.sizes)] == b.sizes
    only_last = whole_batches and len(b.sizes) == len(a.sizes) - 1 and a.sizes[-1] < a.sizes[0]
    if (b.drop_last and not a.drop_last) or (only_last and b.finished):
        return "training-drops-samples"
    return "epoch-shortened" if whole_batches or not b.finished else "samples-missing"


def _describe_missing_samples(a: LoaderPassTrace, b: LoaderPassTrace) -> str:
    """Return a text on the first batch that differs or is missing after the migration, and on the missing samples.

    The text contains the number of this batch, and the indices of up to five missing samples.
    """
    first = _first_unequal(a.sizes, b.sizes)
    text = f": batch {first} is the first that {'differs' if first <= len(b.sizes) else 'is missing'}"
    gone = _samples_missing_in(a, b)
    if not gone:
        return text
    some = ", ".join(map(str, sorted(gone)[:_SHOWN]))
    return f"{text}; {gone.total()} samples are missing (indices {some}{', ...' if len(gone) > _SHOWN else ''})"


def _randomness_difference(a: LoaderPassTrace, b: LoaderPassTrace) -> NamedDifference | None:
    if a.random and not b.random:
        return "augmentation-missing", "samples have random augmentation only before the migration"
    if b.random and not a.random:
        return "augmentation-added", "samples have random augmentation only after the migration"
    if _is_shuffled(a) and not _is_shuffled(b):
        return "not-shuffled", "the loader shuffles only before the migration"
    if _is_shuffled(b) and not _is_shuffled(a):
        return "shuffled", "the loader shuffles only after the migration"
    return None


def _sample_difference(a: LoaderPassTrace, b: LoaderPassTrace, augmented: bool) -> NamedDifference | None:
    """Return the difference between the samples of two iterations over loaders; None without a difference.

    If the samples are augmented, or if the loader shuffles in a training with augmentation, values and order may differ
    between the versions. The function then compares only which samples the loader yields, and only if the sampler
    yields every sample exactly once. In all other cases, the batches must be equal to the last bit, in the same order.
    """
    exact = not (a.random or (augmented and a.shuffled))
    if exact:
        for number, (old, new) in enumerate(zip(a.batches, b.batches, strict=True), start=1):
            if old != new:
                return _describe_first_differing_batch(a, b, number)
        return None
    # Augmentation no longer uses the global generator after the migration, so this generator shuffles differently.
    if not a.whole:
        return None
    if a.labels != b.labels:
        return "samples-differ", f"different samples: the labels are {a.labels} before, {b.labels} after"
    old, new = (a.plain_contents, b.plain_contents) if a.random else (a.contents, b.contents)
    if old and old == new:
        return None
    if old and new and not a.random:
        return "samples-differ", "after the migration, some samples are missing, or have other values"
    return _index_difference(a, b)


def _describe_first_differing_batch(a: LoaderPassTrace, b: LoaderPassTrace, number: int) -> NamedDifference:
    """Return name and description of the difference in batch ``number``, which is the first batch that differs."""
    where = f"batch {number} of {len(a.batches)} is the first that differs"
    if a.contents == b.contents:
        return "order-differs", f"{where} (the same samples in a different order)"
    difference = _index_difference(a, b)
    same_indices = not (a.indices and b.indices) or a.indices == b.indices
    if difference is None and same_indices and a.sketches and b.sketches:
        difference = _value_difference(a.sketches[number - 1], b.sketches[number - 1])
    name, text = difference or ("samples-differ", "other values")
    return name, f"{where} ({text})"


def _index_difference(a: LoaderPassTrace, b: LoaderPassTrace) -> NamedDifference | None:
    gone, come = _samples_missing_in(a, b), _samples_missing_in(b, a)
    if not gone:
        return None
    some = [", ".join(map(str, sorted(part)[:_SHOWN])) for part in (gone, come)]
    return (
        "samples-differ",
        f"{pluralize(gone.total(), 'sample')} replaced, for example: index {some[0]} before, index {some[1]} after",
    )


def _value_difference(before: str, after: str) -> NamedDifference | None:
    """Return the name and the description of the difference between the values of two batches; None for equal values.

    The arguments are results of :func:`encode_sample_values`. The result is also None if the batches do not have
    equally many values.
    """
    a, b = map(decode_sample_values, (before, after))
    if len(a) != len(b) or not len(a) or np.array_equal(a, b, equal_nan=True):
        return None
    size = f"largest absolute difference {np.nanmax(np.abs(b - a)):.3g} among {len(a)} compared values"
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if len(a) >= _LEAST and np.ptp(a) > 0:
        scale, shift = np.polyfit(a, b, 1)
        if scale > 0 and np.abs(scale * a + shift - b).max() <= _TOLERANCE * np.ptp(b):
            offset = f"{'-' if shift < 0 else '+'} {abs(shift):.3g}"
            changed = f"value after the migration = {scale:.6g} * value before {offset}"
            return "statistics-differ", f"samples are standardised with other statistics: {changed}; {size}"
    return "values-differ", f"other values; {size}"


def _loss_difference(a: LoaderPassTrace, b: LoaderPassTrace, augmented: bool) -> NamedDifference | None:
    if augmented:
        return None
    if len(a.losses) != len(b.losses):
        return "losses-differ", f"the training computes {len(a.losses)} losses before, {len(b.losses)} after"
    for number, (old, new) in enumerate(zip(a.losses, b.losses, strict=True), start=1):
        if old != new:
            values = f"{float.fromhex(old)!r} before, {float.fromhex(new)!r} after"
            return "losses-differ", f"loss {number} is {values}, although the batches are equal"
    return None


def _samples_missing_in(a: LoaderPassTrace, b: LoaderPassTrace) -> Counter[int]:
    """Count the samples of iteration ``a`` over a loader that are missing in iteration ``b``.

    The result has the index of each missing sample, and how many more times ``a`` contains the sample than ``b``. The
    result is empty if the indices of one of the iterations are not known, or if the iterations use different datasets.
    """
    comparable = a.base and a.base == b.base and a.base_indices and b.base_indices
    return Counter(a.base_indices) - Counter(b.base_indices) if comparable else Counter()


def _is_shuffled(record: LoaderPassTrace) -> bool:
    """Return whether the sample indices in an iteration over a loader are not in ascending order.

    One or two shuffled indices are often in ascending order by chance. If the iteration has fewer than three different
    indices, the function therefore returns whether the class of the sampler shuffles.
    """
    if len(set(record.indices)) > 2:
        return any(later < earlier for earlier, later in pairwise(record.indices))
    return record.shuffled


def _repeat_same_order(records: list[LoaderPassTrace]) -> bool:
    """Return whether a loader shuffles its samples, but all iterations over it (at least two) have the same order."""
    by_loader: dict[int, list[list[int]]] = {}
    for record in records:
        if record.indices and _is_shuffled(record):
            by_loader.setdefault(record.loader, []).append(record.indices)
    return any(len(orders) > 1 and all(order == orders[0] for order in orders) for orders in by_loader.values())


def _first_unequal(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the position of the first element that differs or is missing in one of two sequences.

    Positions count from 1. If the sequences are equal, the result is their length + 1.
    """
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False), start=1) if x != y), min(len(a), len(b)) + 1)


def encode_sample_values(tensors: Sequence[torch.Tensor]) -> str:
    """Return up to 16 values of each sample as text: base64 of float32 values.

    The values come from the first floating-point tensor of the batch that has at least two axes.
    """
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.ndim > 1:
            rows = tensor.detach().to("cpu", torch.float32).flatten(1)
            step = max(1, rows.shape[1] // _PER_SAMPLE)
            values = rows[:, ::step][:, :_PER_SAMPLE].contiguous().numpy()
            return base64.b64encode(values.astype("<f4").tobytes()).decode()
    return ""


def decode_sample_values(text: str) -> NDArray[np.float64]:
    """Return the values that :func:`encode_sample_values` encoded as ``text``."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)


def seed_dependent_aspects(passes: Sequence[LoaderPassTrace], result: Mapping[str, str]) -> dict[str, str]:
    """Return a text for each aspect of a run that may depend on the seed, such as the order of the samples.

    Args:
        passes: the records of all iterations over loaders in the run.
        result: return value of the entry point, as the result of :func:`.leaf_fingerprints`.

    Returns:
        A dictionary: name of an aspect, such as ``the losses`` → a text. If the aspect is equal in two runs, both runs
        have equal texts.
    """
    train = [record for record in passes if record.role == "train"]
    found = {
        "the order of the training samples": [str(index) for record in train for index in record.indices],
        "the training samples": [record.contents for record in train],
        "the training batches": [batch for record in train for batch in record.batches],
        "the losses": [loss for record in passes for loss in record.losses],
    }
    texts = {name: short_hash(" ".join(parts).encode()) for name, parts in found.items()}
    return {**texts, **{_RESULT + path: text for path, text in result.items()}}


def find_lost_seed_dependence(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> str | None:
    """Return an aspect of the training, such as ``the losses``, that depends on the seed only before the migration.

    The result is None if there is no such aspect.

    A single returned value, such as an accuracy, may be equal for two seeds by chance. So the function returns ``the
    results`` only if all returned values that depended on the seed are equal for both seeds after the migration.

    Args:
        before: results of :func:`seed_dependent_aspects` for two runs with different seeds, before the migration.
        after: results for two runs with the same two seeds, after the migration.
    """
    if len(before) != 2 or len(after) != 2:
        return None
    varied = [name for name in before[0] if before[0][name] != before[1].get(name)]
    fixed = [name for name in varied if name in after[0] and after[0][name] == after[1].get(name)]
    named = [name for name in fixed if not name.startswith(_RESULT)]
    if named:
        return named[0]
    results = [name for name in varied if name.startswith(_RESULT)]
    return "the results" if results and len([n for n in fixed if n.startswith(_RESULT)]) == len(results) else None
