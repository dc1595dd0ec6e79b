"""Validation samples that are also training samples, by content."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.document import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

__all__ = ["check"]

_LEAST_SHARED, _LEAST_SHARE = 2, 0.05
_LEAST_BYTES = 16
_MOST_REPEATED = 0.1


def check(seen: Recording) -> Iterator[Problem]:
    """Compare each validation pass with the training pass before it.

    Left out are loaders of the training dataset itself, which measure how well training fits; samples of few bytes,
    which may be equal by chance; and all loaders if another validation loader after the same training has no overlap.
    """
    trained = seen.trained_datasets()
    training: tuple[LoaderInfo, LoaderPass] | None = None
    shared: dict[int, dict[int, tuple[LoaderInfo, int, int]]] = {}
    for one in seen.passes:
        loader = seen.loaders[one.loader]
        if one.trains:
            training = loader, one
        elif training is not None and one.evaluates and loader.dataset_ids[0] not in trained:
            train, validation = _samples(seen, training[1]), _samples(seen, one)
            if train and validation:
                found = loader, len(train & validation), len(validation)
                shared.setdefault(training[0].number, {}).setdefault(loader.number, found)
    for number, loaders in shared.items():
        if any(not both for _, both, _ in loaders.values()):
            continue
        for loader, both, all_of_it in loaders.values():
            if both >= max(_LEAST_SHARED, _LEAST_SHARE * all_of_it):
                yield Problem.at(
                    loader.place,
                    "overlap",
                    "Validation samples are also training samples, so validation results are too good.",
                    f"{both} of {all_of_it} samples of {loader} are equal to samples of {seen.loaders[number]}, to the "
                    "last byte.",
                    "Split the samples once, so that no sample is in both parts.",
                )


def _samples(seen: Recording, one: LoaderPass) -> set[str]:
    """Hashes of the samples of a pass; empty where they are too small or too often equal to prove anything."""
    tasks = [task for run in seen.runs_of(one) for task in run.tasks]
    samples = [sample for task in tasks for sample in task.samples]
    unique = set(samples)
    is_large = all(task.sample_bytes >= _LEAST_BYTES for task in tasks if task.samples)
    return unique if is_large and len(unique) >= (1 - _MOST_REPEATED) * len(samples) else set()
