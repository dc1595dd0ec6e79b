"""Find trainings that read the samples in the same random order in every epoch, or in the order of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import BatchRecord, LoaderInfo, Recording

_LEAST_SAMPLES = 8
_LEAST_SORTED = 16
_LARGEST_CLASS = 0.7


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the sample indices of two training epochs, and look for samples that are sorted by class.

    Equal orders in both epochs are a problem only if the sampler shuffles. Samples sorted by class are no problem for a
    recurrent model that carries its state from batch to batch (truncated backpropagation through time), because such a
    model must read its samples in order.
    """
    for passes in recording.group_training_passes():
        loader = passes[0][0]
        orders = [
            {run.worker: [index for task in run.tasks for index in task.indices] for run in recording.runs_of(one)}
            for _, one in passes
        ]
        repeats = len(orders) > 1 and _is_same_order(orders[0], orders[1])
        if repeats and (loader.is_distributed or loader.is_random_order):
            yield Problem.at(
                loader.place,
                "order",
                f"The random order of the training samples ({loader.sampler}) is the same in every epoch.",
                f"Both epochs of {loader} begin with the sample indices "
                f"{', '.join(map(str, next(iter(orders[0].values()))[:4]))}, …",
                "Call sampler.set_epoch(epoch) before each epoch."
                if loader.is_distributed
                else "Set the seed only once, before the first epoch. If the loader has its own generator, create the "
                "generator only once.",
            )
            continue
        evidence = _sorted_by_class(loader, recording.tasks_of(passes[0][1]))
        if evidence is not None and not any(one.carries_state for _, one in passes):
            yield Problem.at(
                loader.place,
                "order",
                "Training reads the samples sorted by class, so most batches have only one class.",
                evidence,
                "Set shuffle=True on the training loader, unless the model carries a state from batch to batch.",
            )


def _is_same_order(first: dict[int, list[int]], second: dict[int, list[int]]) -> bool:
    """Return whether two epochs read the same indices. The dictionaries map a worker to its indices, in order."""
    read = sum(map(len, first.values()))
    if read < _LEAST_SAMPLES or first.keys() != second.keys():
        return False
    return all(
        indices[: len(second[worker])] == second[worker][: len(indices)] and second[worker]
        for worker, indices in first.items()
    )


def _sorted_by_class(loader: LoaderInfo, batches: list[BatchRecord]) -> str | None:
    """Return the evidence that the samples are sorted by class; None if there is no such evidence."""
    tasks = sorted(batches, key=lambda task: task.indices[:1])
    indices = [index for task in tasks for index in task.indices]
    labels = [label for task in tasks for label in task.labels]
    if loader.sampler != "SequentialSampler" or indices != list(range(len(indices))) or len(labels) != len(indices):
        return None
    shares = Counter(labels)
    if len(labels) < _LEAST_SORTED or len(shares) < 2 or max(shares.values()) > _LARGEST_CLASS * len(labels):
        return None
    changes = sum(one != other for one, other in pairwise(labels))
    if changes >= len(shares) or len(tasks) <= len(shares):
        return None
    pure = sum(len(set(task.labels)) == 1 for task in tasks)
    return f"{pure} of {len(tasks)} batches had only one of the {len(shares)} classes, and {loader} does not shuffle."
