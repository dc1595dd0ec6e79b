"""Samples that are read and decoded anew in each epoch, and come out the same, while the training waits."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.document import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

__all__ = ["check", "is_in_memory", "is_read_again"]

_LEAST_COMPARED = 8
_LEAST_WAITED, _LEAST_WAIT_S = 0.5, 0.5
_LEAST_SAMPLE_S = 1e-3
_HELD_SHARE = 0.5
_MIB = 2**20


def check(seen: Recording) -> Iterator[Problem]:
    """Compare the samples of two training epochs by index, and compare reading with the time of the epoch."""
    for series in seen.series():
        epochs = [(loader, one) for loader, one in series if one.trains and not loader.is_stream]
        if len(epochs) < 2 or not is_read_again(seen, epochs):
            continue
        loader, later = epochs[1]
        size = _bytes(seen, loader, epochs[0][1])
        share = sum(later.sizes) / loader.samples
        yield Problem.at(
            loader.dataset_place if loader.dataset_place.file else loader.place,
            "repeated-reading",
            "Each epoch reads and decodes the same samples again, and the training waits for them.",
            f"{seen.compare(epochs[0][1], later)[0]} samples were compared, and were the same in both epochs. In the "
            f"second epoch the training waited {sum(later.waits_s):.1f} of {later.seconds:.1f} s for {loader}.",
            f"Decode once into a memory-mapped array (docs/caching.md): {size / _MIB:,.1f} MiB for {loader.samples} "
            f"samples would save up to {sum(later.waits_s) / share:.1f} s of each epoch.",
        )


def is_in_memory(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> bool:
    """Whether the dataset holds about as many bytes in tensors and arrays as its samples have."""
    return loader.held_bytes >= _HELD_SHARE * _bytes(seen, loader, one)


def _bytes(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> int:
    """Bytes of all samples, by the samples of the first epoch."""
    tasks = [task for run in seen.runs_of(one) for task in run.tasks]
    return max((task.sample_bytes for task in tasks), default=0) * loader.samples


def is_read_again(seen: Recording, epochs: list[tuple[LoaderInfo, LoaderPass]]) -> bool:
    """Whether all compared samples are the same in both epochs, and reading them is slow."""
    if is_in_memory(seen, *epochs[0]):
        return False
    later = epochs[1][1]
    compared, equal = seen.compare(epochs[0][1], later)
    tasks = [task for run in seen.runs_of(later) for task in run.tasks if task.indices]
    read = sum(len(task.indices) for task in tasks)
    return (
        equal == compared >= _LEAST_COMPARED
        and later.waited_share >= _LEAST_WAITED
        and sum(later.waits_s) >= _LEAST_WAIT_S
        and sum(task.seconds for task in tasks) >= _LEAST_SAMPLE_S * read
    )
