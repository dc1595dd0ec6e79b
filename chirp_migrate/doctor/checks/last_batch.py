"""Find last batches with one sample, which BatchNorm cannot normalize, and validation samples lost by drop_last."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_WHOLE = {"SequentialSampler", "RandomSampler"}


def check(recording: Recording) -> Iterator[Problem]:
    """Check the last batch of each iteration over a loader.

    A last batch with one sample, or a loader without batches, is a problem only if the training uses the user's own
    samples. For other trainings, ``doctor`` chooses the number of synthetic samples.
    """
    trained = recording.trained_datasets()
    for loader in recording.loaders:
        for one in recording.passes_of_loader(loader):
            problem = _single_sample_problem(recording, loader, one) or _dropped_samples_problem(
                recording, loader, one, loader.dataset_ids[0] in trained
            )
            if problem is not None:
                yield problem
                break


def _single_sample_problem(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> Problem | None:
    got = [calls for calls in one.normalization.values() if calls.with_one_sample]
    if (
        not got
        or not seen.has_own_data
        or not loader.batch_size
        or loader.batch_size < 2
        or one.sizes[-1] != 1
        or not one.has_gradients[-1]
    ):
        return None
    total = sum(one.sizes)
    raised = " Normalizing this batch raised an error." if "more than 1 value per channel" in seen.error else ""
    return Problem.at(
        loader.place,
        "last-batch",
        f"The last training batch has one sample, and {got[0].kind} cannot normalize a single sample.",
        f"{total} samples in batches of {loader.batch_size} leave one sample for the last batch. "
        f"{got[0].kind} got that batch in training mode ({loader}).{raised}",
        "Set drop_last=True on the training loader, or choose a batch size that leaves more than one sample.",
    )


def _dropped_samples_problem(seen: Recording, loader: LoaderInfo, one: LoaderPass, is_trained: bool) -> Problem | None:
    if not loader.drop_last or not one.is_complete or loader.is_stream or not loader.batch_size:
        return None
    read = sum(one.sizes)
    if seen.has_own_data and read == 0 and 0 < loader.samples < loader.batch_size:
        return Problem.at(
            loader.place,
            "last-batch",
            "drop_last=True drops every sample, so the loader yields no batch.",
            f"The dataset has {pluralize(loader.samples, 'sample')} and a batch needs {loader.batch_size} ({loader}).",
            "Use a smaller batch size, or drop_last=False.",
        )
    if one.evaluates and not is_trained and loader.sampler in _WHOLE and 0 < read < loader.samples:
        return Problem.at(
            loader.place,
            "last-batch",
            f"Validation omits {pluralize(loader.samples - read, 'sample')}, because its loader has drop_last=True.",
            f"The validation, which runs without gradients, read {read} of {loader.samples} samples ({loader}).",
            "Set drop_last=False on the validation loader.",
        )
    return None
