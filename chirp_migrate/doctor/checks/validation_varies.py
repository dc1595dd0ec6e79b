"""Find validation that is not deterministic, because the samples are random or the model is in training mode."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording


def check(recording: Recording) -> Iterator[Problem]:
    """Compare batches with the same indices in two validation epochs, and check the mode of the BatchNorm modules.

    BatchNorm in training mode is a problem if all validation epochs use training mode. If at least one validation epoch
    uses evaluation mode, the training mode is probably intended, for example to adapt the running statistics to other
    data.
    """
    trained = recording.trained_datasets()
    chosen = any(
        one.evaluates and one.forwards_without and not any(calls.calls for calls in one.normalization.values())
        for one in recording.passes
    )
    for series in recording.group_passes():
        passes = [(loader, one) for loader, one in series if one.evaluates and loader.dataset_ids[0] not in trained]
        if not passes:
            continue
        if len(passes) > 1:
            yield from _find_varying_samples(recording, passes)
        loader, one = passes[0]
        modes = [calls for calls in one.normalization.values() if calls.calls]
        if modes and not chosen:
            yield Problem.at(
                loader.place,
                "validation-varies",
                f"Validation runs with {modes[0].kind} in training mode, so the result of a sample depends on its "
                "batch, and validation data changes the running statistics.",
                f"{modes[0].kind} was called {modes[0].calls} times in training mode during the validation with "
                f"{loader}, which runs without gradients.",
                "Call model.eval() before validation, and model.train() after it.",
            )


def _find_varying_samples(seen: Recording, passes: list[tuple[LoaderInfo, LoaderPass]]) -> Iterator[Problem]:
    (loader, first), (_, second) = passes[:2]
    before, after = _hashes_by_indices(seen, first), _hashes_by_indices(seen, second)
    same = before.keys() & after.keys()
    compared = sum(map(len, same))
    differing = sum(
        one != other for indices in same for one, other in zip(before[indices], after[indices], strict=False)
    )
    if not differing:
        return
    ids, trained = set(loader.dataset_ids), {each.loader for each in seen.passes if each.trains}
    shared = next((other for other in seen.loaders if ids & set(other.dataset_ids) and other.number in trained), None)
    fix = "Use transforms without randomness for the validation dataset."
    cause = ""
    if shared is not None:
        cause = f" The validation loader shares a dataset object with {shared}, which is used for training."
        fix = "Build the dataset twice, and take the validation samples from the dataset without augmentation."
    yield Problem.at(
        loader.place,
        "validation-varies",
        "Validation data is random: the same indices return different data in each epoch.",
        f"{differing} of {compared} samples of {loader} differ between two validation epochs.{cause}",
        fix,
    )


def _hashes_by_indices(seen: Recording, one: LoaderPass) -> dict[tuple[int, ...], list[str]]:
    """Return a dictionary: indices of a batch → one hash for each sample of the batch.

    If the recording has no hash for each sample, each sample gets the hash of the whole batch.
    """
    return {
        tuple(task.indices): task.samples or [task.whole] * len(task.indices)
        for task in seen.tasks_of(one)
        if task.indices and task.whole
    }
