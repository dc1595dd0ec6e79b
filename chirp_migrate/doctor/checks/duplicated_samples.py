"""Find iterable datasets (streams) whose worker processes all deliver the same samples."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording

_LEAST_SAMPLES = 4


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the samples that the workers of an iterable dataset delivered during one iteration over the loader.

    The check reports a problem if all workers deliver the same samples in the same order. If every worker has reached
    the end of the dataset, the check also reports workers that deliver the same samples in different orders. If one
    worker delivers the same sample twice, the check reports nothing, because samples of different workers may then be
    equal by chance.
    """
    for loader in recording.loaders:
        if not loader.is_stream or loader.num_workers < 2:
            continue
        for one in recording.passes_of_loader(loader):
            runs = [run for run in recording.runs_of(one) if run.worker >= 0]
            delivered = [[sample for task in run.tasks for sample in task.samples] for run in runs]
            if len(runs) < loader.num_workers or not _are_copies(delivered, all(run.is_over for run in runs)):
                continue
            unique = len(set().union(*delivered))
            yield Problem.at(
                loader.dataset_place if loader.dataset_place.file else loader.place,
                "duplicated-samples",
                f"Every worker process delivers the same samples of {loader.dataset}, so each sample arrives "
                f"{loader.num_workers} times.",
                f"{len(runs)} workers delivered {sum(map(len, delivered))} samples in one epoch, but only {unique} "
                f"distinct samples ({loader}).",
                "Divide the samples in __iter__: get_worker_info() from torch.utils.data has the index of this worker "
                "(id) and the number of workers (num_workers).",
            )
            break


def _are_copies(delivered: list[list[str]], are_over: bool) -> bool:
    shortest = min(map(len, delivered))
    if shortest < _LEAST_SAMPLES or any(len(set(samples)) < len(samples) for samples in delivered):
        return False
    in_order = all(samples[:shortest] == delivered[0][:shortest] for samples in delivered)
    return in_order or (are_over and all(set(samples) == set(delivered[0]) for samples in delivered))
