"""Find trainings that wait because each epoch reads and decodes the same samples again, with equal values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import CodeLine, LoaderInfo, LoaderPass, Recording

_LEAST_COMPARED = 8
_LEAST_WAITED, _LEAST_WAIT_S = 0.5, 0.5
_LEAST_SAMPLE_S = 1e-3
_LEAST_SHARE = 0.5
_IN_MEMORY_SHARE = 0.5
_MIB = 2**20


class _RepeatedReading(NamedTuple):
    """Slow work, such as decoding, that two epochs do for the same samples with equal results.

    Attributes:
        evidence: a sentence on the result of comparing both epochs, for the report.
        share: time of the repeated work / time of all work for reading samples, 0 to 1.
        bytes: number of bytes that a cache would need for each sample.
        place: line that defines the dataset class, or the function that repeats the work.
        detail: addition to the message if random transforms follow the repeated work; otherwise an empty string.
    """

    evidence: str
    share: float
    bytes: int
    place: CodeLine
    detail: str = ""


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the samples of two training epochs by index, for each loader for which the training waits.

    If random transforms change the samples, the check compares the return values of the dataset's slow functions
    instead. A function repeats its work if every return value in the second epoch also occurs in the first epoch.
    """
    for series in recording.group_passes():
        epochs = [(loader, one) for loader, one in series if one.trains and not loader.is_stream]
        again = find_repeated_slow_reading(recording, epochs) if len(epochs) > 1 else None
        if again is None:
            continue
        loader, later = epochs[1]
        waited_s = _waited_s(loader, later)
        saved_s = again.share * waited_s * loader.samples / sum(later.sizes)
        yield Problem.at(
            again.place if again.place.file else loader.place,
            "repeated-reading",
            f"Each epoch reads and decodes the same samples again{again.detail}, and the training waits for them.",
            f"{again.evidence} In the second epoch, the training waited {waited_s:.1f} of {later.seconds:.1f} s for "
            f"{loader}.",
            f"Decode the samples once into a memory-mapped array (docs/caching.md). For {loader.samples} samples, an "
            f"array of {again.bytes * loader.samples / _MIB:,.1f} MiB saves up to {saved_s:.1f} s of each epoch.",
        )


def is_in_memory(recording: Recording, loader: LoaderInfo, loader_pass: LoaderPass) -> bool:
    """Return whether the samples are in memory.

    The function assumes this if the tensors and arrays of the dataset have at least half the bytes of all samples.
    """
    return 0 < _IN_MEMORY_SHARE * _sample_bytes(recording, loader_pass) * loader.samples <= loader.held_bytes


def find_repeated_slow_reading(
    recording: Recording, epochs: list[tuple[LoaderInfo, LoaderPass]]
) -> _RepeatedReading | None:
    """Return the slowest work that two epochs do with equal results; None without such work."""
    (loader, first), (_, later) = epochs[:2]
    tasks = [task for task in recording.tasks_of(later) if task.indices]
    seconds = sum(task.seconds for task in tasks)
    if (
        not tasks
        or is_in_memory(recording, loader, first)
        or _waited_s(loader, later) < max(_LEAST_WAIT_S, _LEAST_WAITED * later.seconds)
        or seconds < _LEAST_SAMPLE_S * sum(len(task.indices) for task in tasks)
    ):
        return None
    compared, equal = recording.count_equal_samples(first, later)
    if equal == compared >= _LEAST_COMPARED:
        evidence = f"All {compared} compared samples are the same in both epochs."
        return _RepeatedReading(evidence, 1.0, _sample_bytes(recording, first), loader.dataset_place)
    found = [_repeated_function(recording, loader, first, later, name) for name in loader.functions]
    return max(filter(None, found), key=lambda one: one.share, default=None)


def _waited_s(loader: LoaderInfo, one: LoaderPass) -> float:
    """Return the seconds that the training waited for batches in an epoch, without the time to start workers."""
    starts = loader.num_workers > 0 and not loader.persistent_workers
    return sum(one.waits_s[1:] if starts else one.waits_s)


def _sample_bytes(seen: Recording, one: LoaderPass) -> int:
    return max((task.sample_bytes for task in seen.tasks_of(one)), default=0)


def _repeated_function(
    seen: Recording, loader: LoaderInfo, first: LoaderPass, later: LoaderPass, name: str
) -> _RepeatedReading | None:
    """Return the slow work that the dataset's function ``name`` repeats; None without such work."""
    before, now = (
        [task.results[name] for task in seen.tasks_of(one) if name in task.results] for one in (first, later)
    )
    known = {one for each in before for one in each.hashes}
    again = [one for each in now for one in each.hashes]
    share = sum(each.seconds for each in now) / sum(task.seconds for task in seen.tasks_of(later))
    if share < _LEAST_SHARE or len(set(again)) < max(_LEAST_COMPARED, len(again) / 2) or not known.issuperset(again):
        return None
    return _RepeatedReading(
        f"All {len(again)} compared results of {name} in the second epoch already occurred in the first epoch. "
        f"{name} took {100 * share:.0f} % of the reading time.",
        share,
        max(each.bytes for each in before),
        loader.functions[name],
        ", before random transforms",
    )
