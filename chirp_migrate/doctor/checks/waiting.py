"""Training that waits for data: for workers to start, or for samples to be read."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import count
from chirp_migrate.doctor.checks.repeated_reading import is_in_memory, read_again
from chirp_migrate.doctor.document import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

__all__ = ["check"]

_LEAST_BATCHES = 20
_LEAST_SHARE, _LEAST_S = 0.5, 1.0
_BUSY = 0.8


def check(seen: Recording) -> Iterator[Problem]:
    """Compare waits with the time of training epochs; the samples must be the user's own, and batches many."""
    if not seen.has_own_data:
        return
    for series in seen.series():
        epochs = [(loader, one) for loader, one in series if one.trains and len(one.sizes) >= _LEAST_BATCHES]
        if len(epochs) < 2:
            continue
        loader = epochs[0][0]
        starts = [one.waits_s[0] for _, one in epochs]
        if loader.num_workers and not loader.persistent_workers and all(map(_waits_for_start, (e[1] for e in epochs))):
            yield _problem(
                loader,
                "Every epoch waits for its worker processes to start.",
                f"The first batch of {loader} took {starts[0]:.1f} and {starts[1]:.1f} s in two epochs of "
                f"{epochs[0][1].seconds:.1f} and {epochs[1][1].seconds:.1f} s.",
                "Keep the workers: persistent_workers=True.",
            )
        elif all(map(_waits_for_samples, (one for _, one in epochs))) and read_again(seen, epochs) is None:
            yield from _slow_reading(seen, loader, epochs[1][1], is_in_memory(seen, *epochs[0]))


def _waits_for_start(one: LoaderPass) -> bool:
    return one.is_complete and one.waits_s[0] >= max(_LEAST_S, _LEAST_SHARE * one.seconds)


def _waits_for_samples(one: LoaderPass) -> bool:
    return sum(one.waits_s[1:]) >= max(_LEAST_S, _LEAST_SHARE * one.seconds)


def _slow_reading(seen: Recording, loader: LoaderInfo, one: LoaderPass, in_memory: bool) -> Iterator[Problem]:
    waited = f"The training waited {sum(one.waits_s):.1f} of {one.seconds:.1f} s for {loader}"
    if in_memory:
        yield _problem(
            loader,
            "Training waits for samples that are in memory already, because they are read one by one.",
            f"{waited}, whose dataset holds its samples.",
            "Read whole batches at once, as the loader factory does: `chirp-migrate plan` shows the change.",
        )
        return
    if not loader.num_workers:
        yield _problem(
            loader,
            "Training waits for samples, because the training process reads them itself.",
            f"{waited}, which has no workers; {count(seen.cpus, 'CPU')} can be used.",
            "Read in worker processes: num_workers. `chirp-migrate tune` measures which number is best.",
        )
        return
    runs = [run for run in seen.runs_of(one) if run.worker >= 0]
    busy = sum(task.seconds for run in runs for task in run.tasks) / (loader.num_workers * one.seconds)
    if busy < _BUSY:
        return
    more = (
        "more workers (`chirp-migrate tune` measures which number is best), or "
        if loader.num_workers < seen.cpus
        else ""
    )
    yield _problem(
        loader,
        "Training waits for samples, although all workers read all the time.",
        f"{waited}, and its {count(loader.num_workers, 'worker')} read {100 * busy:.0f} % of the time.",
        f"Use {more}less work for each sample: decode once (docs/caching.md), transform whole batches.",
    )


def _problem(loader: LoaderInfo, message: str, evidence: str, fix: str) -> Problem:
    return Problem.at(loader.place, "waiting", message, evidence, fix)
