"""Loading problems that the traces of a verification prove: those checks of ``doctor`` that need only traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chirp_migrate.console.text import count
from chirp_migrate.verify.document import LoadingProblem
from chirp_migrate.verify.spec import Trace

__all__ = ["problems_in"]

_LEAST_ORDERED = 8
_LEAST_SHARED, _LEAST_SHARE = 2, 0.05


def problems_in(passes: Mapping[str, Sequence[Trace]], has_own_data: bool) -> list[LoadingProblem]:
    """Return the problems of all entry points; a problem of several entry points is listed once.

    Args:
        passes: entry point → the traces of its loaders.
        has_own_data: whether the number of samples is that of the user's data, and not a choice of verify.
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for label, traces in passes.items():
        found = [
            *_order(traces),
            *_validation_varies(traces),
            *_overlap(traces),
            *_find_dropped_samples(traces, has_own_data),
        ]
        for one in dict.fromkeys(found):
            labels.setdefault(one, []).append(label)
    return [LoadingProblem(check, message, where) for (check, message), where in labels.items()]


def _order(traces: Sequence[Trace]) -> Iterator[tuple[str, str]]:
    """Yield a problem if a random sampler has the same order in the first two epochs of a loader."""
    epochs: dict[int, list[Trace]] = {}
    for one in traces:
        if one.role == "train" and one.shuffled and len(one.indices) >= _LEAST_ORDERED:
            epochs.setdefault(one.loader, []).append(one)
    if any(len(of) > 1 and of[0].indices == of[1].indices for of in epochs.values()):
        yield "order", "The random order of the training samples is the same in every epoch."


def _validation_varies(traces: Sequence[Trace]) -> Iterator[tuple[str, str]]:
    """Yield a problem if the same indices lead to other data in two validation passes of a loader."""
    first: dict[int, Trace] = {}
    for one in traces:
        if one.role != "validation" or not one.indices or _has_trained(traces, one):
            continue
        earlier = first.setdefault(one.loader, one)
        if earlier.indices == one.indices and earlier.sizes == one.sizes and earlier.batches != one.batches:
            yield "validation-varies", "Validation data is random: the same indices give other data in each epoch."


def _overlap(traces: Sequence[Trace]) -> Iterator[tuple[str, str]]:
    """Yield a problem if validation samples have indices of training samples of the same dataset.

    Loaders of the training dataset itself do not count, because they measure how well training fits. No loader counts
    if another validation loader after the same training has no overlap.
    """
    training: Trace | None = None
    shared: dict[int, dict[int, tuple[int, int]]] = {}
    for one in traces:
        if one.role == "train":
            training = one
        elif training is not None and _is_named(training) and _is_named(one) and not _has_trained(traces, one):
            both = set(training.base_indices) & set(one.base_indices) if training.base == one.base else set()
            shared.setdefault(training.loader, {})[one.loader] = len(both), len(set(one.base_indices))
    for loaders in shared.values():
        if all(both >= max(_LEAST_SHARED, _LEAST_SHARE * all_of_it) for both, all_of_it in loaders.values()):
            yield "overlap", "Validation samples are also training samples."


def _find_dropped_samples(traces: Sequence[Trace], has_own_data: bool) -> Iterator[tuple[str, str]]:
    """Yield a problem if ``drop_last`` omits all samples, or some samples of validation."""
    for one in traces:
        if not one.drop_last or not one.finished:
            continue
        if has_own_data and one.available > 0 and one.samples == 0:
            yield "last-batch", "drop_last drops every sample, so the loader has no batch."
        is_validation = one.role == "validation" and one.whole and not _has_trained(traces, one)
        if is_validation and 0 < one.samples < one.available:
            lost = count(one.available - one.samples, "sample")
            yield "last-batch", f"Validation leaves out {lost}, because its loader has drop_last=True."


def _has_trained(traces: Sequence[Trace], one: Trace) -> bool:
    """Return whether a training pass may use the dataset of a validation pass: the same loader, or equal data."""
    return any(
        other.role == "train"
        and (other.loader == one.loader or (other.base == one.base and other.available == one.available))
        for other in traces
    )


def _is_named(one: Trace) -> bool:
    """Return whether the indices of samples are known, and the dataset is identified by more than its length."""
    return bool(one.base_indices) and " " in one.base
