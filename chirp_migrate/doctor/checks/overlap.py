"""Find validation samples that have the same content as training samples."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_LEAST_SHARED, _LEAST_SHARE = 2, 0.05
_LEAST_BYTES = 16
_MOST_REPEATED = 0.1


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the samples of each validation epoch with the samples of the training epoch before it.

    The check skips loaders of the training dataset itself, because such loaders measure the fit on training samples on
    purpose. The check skips samples smaller than 16 bytes, because such samples may be equal by chance. A training may
    have several validation loaders. If one of them shares no sample with a training loader, the check assumes that this
    loader validates the training correctly. The check then reports no other validation loader that shares samples with
    this training loader.

    If all samples of a validation loader are training samples, there are two possible causes. Either the split is
    wrong, or the loader measures the fit on training samples. The message names both causes.

    The split must be wrong if training and validation share some samples, but each also reads samples that the other
    does not read. For example, the project may split the data twice at random. The message then names only the wrong
    split, if two conditions hold. First, the training epoch and the validation epoch read every sample of their
    datasets. Second, the next training epoch reads the same samples with equal values. If a condition does not hold, a
    sampler or random transforms may hide equal samples, and the message names both causes.
    """
    trained = recording.trained_datasets()
    training: tuple[LoaderInfo, LoaderPass] | None = None
    shared: dict[int, dict[int, tuple[LoaderInfo, int, int, bool]]] = {}
    for one in recording.passes:
        loader = recording.loaders[one.loader]
        if one.trains:
            training = loader, one
        elif training is not None and one.evaluates and loader.dataset_ids[0] not in trained:
            train, validation = _samples(recording, training[1]), _samples(recording, one)
            if train and validation:
                crosses = bool(train - validation and validation - train)
                are_whole = _reads_every_sample(recording, *training) and _reads_every_sample(recording, loader, one)
                is_certain = crosses and are_whole and _repeats_in_next_epoch(recording, training[1])
                found = loader, len(train & validation), len(validation), is_certain
                shared.setdefault(training[0].number, {}).setdefault(loader.number, found)
    for number, loaders in shared.items():
        if any(not both for _, both, _, _ in loaders.values()):
            continue
        for loader, both, all_of_it, is_certain in loaders.values():
            if both >= max(_LEAST_SHARED, _LEAST_SHARE * all_of_it):
                yield Problem.at(
                    loader.place,
                    "overlap",
                    "Validation samples are also training samples, so validation results are too good."
                    if is_certain
                    else "Validation samples are also training samples. Either the split is wrong, and validation "
                    "results are too good. Or this loader only measures the fit on training samples, and no other "
                    "loader validates.",
                    f"{both} of {all_of_it} samples of {loader} are equal to samples of {recording.loaders[number]} in "
                    "every byte.",
                    "Split the samples once, so that no sample is in both parts."
                    if is_certain
                    else (
                        "Validate with samples that are not used for training. If one loader does so, doctor does not "
                        "report other loaders that measure the fit on training samples."
                    ),
                )


def _samples(seen: Recording, one: LoaderPass) -> set[str]:
    """Return the hashes of the samples of an epoch; an empty set if equal hashes would not prove an overlap.

    Equal hashes prove no overlap if samples are smaller than 16 bytes, or if more than 10 % of the samples repeat
    another sample of the same epoch.
    """
    tasks = seen.tasks_of(one)
    samples = [sample for task in tasks for sample in task.names or task.samples]
    unique = set(samples)
    is_large = all(task.sample_bytes >= _LEAST_BYTES for task in tasks if task.samples)
    return unique if is_large and len(unique) >= (1 - _MOST_REPEATED) * len(samples) else set()


def _reads_every_sample(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> bool:
    """Return whether the iteration ``one`` over a loader read every sample of the dataset."""
    return len(seen.samples_of(one)) == loader.samples


def _repeats_in_next_epoch(seen: Recording, one: LoaderPass) -> bool:
    """Return whether the next training epoch reads the samples of the training epoch ``one`` with equal values.

    The function compares the samples that have a hash in both epochs. If there are none, the result is False.
    """
    for (_, first), *later in seen.group_training_passes():
        if first.number == one.number and later:
            compared, equal = seen.count_equal_samples(first, later[0][1])
            return 0 < compared == equal
    return False
