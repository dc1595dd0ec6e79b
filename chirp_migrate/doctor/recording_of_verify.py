"""Run the checks of ``doctor`` on the records of loader passes (iterations over a loader) from ``verify``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from chirp_migrate.doctor.checks import find_problems
from chirp_migrate.doctor.recording import (
    IN_TRAINING_PROCESS,
    BatchRecord,
    CodeLine,
    FetcherPassRecord,
    LoaderInfo,
    LoaderPass,
    Recording,
)
from chirp_migrate.verify.spec import LoaderPassTrace
from chirp_migrate.verify.verify_report import LoadingProblem


def find_problems_in_passes(
    passes: Mapping[str, Sequence[LoaderPassTrace]], has_own_data: bool
) -> list[LoadingProblem]:
    """Return the loading problems of all entry points (training functions or a script).

    A problem that occurs in several entry points appears once.

    Args:
        passes: dictionary, label (short unique name) of an entry point → the records of its iterations over loaders.
        has_own_data: whether the training uses the user's own samples; False if ``verify`` created synthetic samples.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one in find_problems(_make_recording(label, of, has_own_data) for label, of in passes.items()):
        found.setdefault((one.check, one.message), {}).update(dict.fromkeys(one.entry_points))
    return [LoadingProblem(check, message, list(labels)) for (check, message), labels in found.items()]


def _make_recording(label: str, traces: Sequence[LoaderPassTrace], has_own_data: bool) -> Recording:
    """Convert the records of an entry point to a recording of ``doctor``.

    The records of ``verify`` do not contain the lines that build the loaders. So the recording identifies each loader
    by a number instead of a line.
    """
    seen = Recording(label, has_own_data=has_own_data)
    numbers: dict[int, int] = {}
    datasets: dict[tuple[str, int], int] = {}
    for number, one in enumerate(traces):
        dataset = datasets.setdefault((one.base, one.available), len(datasets))
        if one.loader not in numbers:
            numbers[one.loader] = len(seen.loaders)
            seen.loaders.append(_loader_info(len(seen.loaders), dataset, one))
        seen.passes.append(
            LoaderPass(
                number,
                numbers[one.loader],
                sizes=one.sizes,
                has_gradients=[one.role == "train"] * len(one.sizes),
                backwards=one.backwards,
                is_complete=one.finished,
            )
        )
        seen.runs.append(FetcherPassRecord(IN_TRAINING_PROCESS, number, 0, tasks=_batch_records(one)))
    return seen


def _loader_info(number: int, dataset: int, one: LoaderPassTrace) -> LoaderInfo:
    return LoaderInfo(
        number=number,
        place=CodeLine("", number),
        dataset="",
        dataset_place=CodeLine(),
        dataset_ids=[dataset],
        is_stream=False,
        samples=one.available,
        batch_size=max(one.sizes, default=one.available + 1),
        num_workers=0,
        persistent_workers=False,
        drop_last=one.drop_last,
        start_method="",
        sampler="RandomSampler" if one.shuffled else "SequentialSampler" if one.whole else "",
        is_random_order=one.shuffled,
    )


def _batch_records(one: LoaderPassTrace) -> list[BatchRecord]:
    """Return the batches of one iteration over a loader.

    If the index of each sample in the innermost dataset is known, and this dataset can be read by index and does not
    augment, each sample gets a name with this index. The checks then recognize equal samples by their names, because
    the records contain no hashes of samples.
    """
    names = [f"{one.base} {index}" for index in one.base_indices] if " " in one.base else []
    ends = pairwise(accumulate(one.sizes, initial=0))
    return [
        BatchRecord(indices=one.indices[begin:end], whole=whole, names=names[begin:end])
        for (begin, end), whole in zip(ends, one.batches, strict=False)
    ]
