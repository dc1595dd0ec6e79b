"""Decide which differences between two runs of a program are errors, and which are permitted."""

from __future__ import annotations

from typing import Any

from .cases import Case
from .parts import GATHERED

_IN_MEMORY = ("TensorDataset", "TensorsAgain", "TensorsShorter")


def differences(case: Case, expected: dict[str, Any], found: dict[str, Any], side: str) -> list[str]:
    """Return the names of the values that differ, except differences that ``docs/loader.md`` lists."""
    early = _iterates_early(case)
    if _draws_in_lookups(case) or (early and case.sampler[1] == "drawn"):
        return []
    here = side == "factory" and case.workers > 0 and case.is_collated and found["loads here"]
    if here and (case.init == "fails" or case.sampler[:2] == ("batches", "drawn")):
        return []  # no worker starts, so no worker fails
    if here and "events" in expected:  # no error of a worker occurs
        expected = {
            **expected,
            "events": [(*event[:2], "") if event[0] == "error" else event for event in expected["events"]],
        }
    apart = ("calls", "loads here")
    differing = [name for name in expected if name not in apart and expected[name] != found[name]]
    if here and "threads" in differing and found["threads"] < expected["threads"]:
        differing.remove("threads")  # PyTorch's loader leaves threads after the error of a worker
    started = side != "factory" or not found["loads here"]
    if not started and "start method" in differing and found["start method"] is None:
        differing.remove("start method")  # only PyTorch's loader started a process, which fixes the start method
    if not is_in_memory(case.dataset):
        kinds = ["main", *(["worker"] if _is_read_to_its_end(case, expected) else [])]
        before, after = expected["calls"], found["calls"]
        if early:
            before, after = _without_indices(before), _without_indices(after)
        differing += [f"calls in {kind}" for kind in kinds if before[kind] != after[kind]]
    return differing


def _iterates_early(case: Case) -> bool:
    """Return whether the main process, and not a worker, iterates over the batches of a user's class.

    The main process computes the random keys for augmentation from the indices in the batches.
    """
    is_augmented = "'changed', 'shipped'" in repr(case.dataset)
    return is_augmented and case.workers > 0 and case.sampler[0] == "batches" and case.sampler[1] in ("own", "drawn")


def _without_indices(calls: dict[str, Any]) -> dict[str, Any]:
    """Return the calls of each kind of process without the accesses to batches of indices."""
    return {kind: {name: n for name, n in of.items() if not name.startswith("indices ")} for kind, of in calls.items()}


def _draws_in_lookups(case: Case) -> bool:
    """Return whether a subset uses random numbers for its indices, and for samples of a dataset of this package.

    PyTorch then looks up all indices of a batch first, because the dataset has a method ``__getitems__``.
    """
    kind, *given = case.dataset
    if kind != "subset" or given[0][0] not in ("scaled", "changed") or given[0][1] != "shipped":
        return False
    is_drawn = given[1] == "drawn" or case.sampler[:2] == ("batches", "drawn")
    return is_drawn and any(word in repr(given[0]) for word in ("'drawn'", "'Drawing'", "'changed'"))


def is_in_memory(dataset: tuple[Any, ...]) -> bool:
    """Return whether a dataset consists of tensors that only PyTorch's code reads."""
    if dataset[0] == "subset":
        return dataset[2] in GATHERED and is_in_memory(dataset[1])
    if dataset[0] == "joined":
        return not dataset[3] and all(map(is_in_memory, dataset[1:3]))
    if dataset[0] == "scaled":
        return dataset[3] in GATHERED and is_in_memory(dataset[2])
    if dataset[0] in ("listed", "rows", "bare"):
        return True
    return dataset[0] == "tensors" and dataset[2] in _IN_MEMORY


def _is_read_to_its_end(case: Case, expected: dict[str, Any]) -> bool:
    """Return whether workers of any speed have read all requested samples when the program continues."""
    return case.use in ("epochs", "again") and not any(event[0] == "error" for event in expected["events"])
