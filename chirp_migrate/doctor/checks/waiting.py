"""Find trainings that wait a long time for workers to start, or for samples."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.checks.repeated_reading import find_repeated_slow_reading, is_in_memory
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_LEAST_BATCHES = 20
_LEAST_SHARE, _LEAST_S = 0.5, 1.0
_BUSY = 0.8
_LESS_WORK = "Reduce the work for each sample: decode samples once (docs/caching.md), or transform whole batches."
_MORE_WORKERS = (
    "Use more workers: `chirp-migrate tune` measures which number is best. Or reduce the work for each sample: decode "
    "samples once (docs/caching.md), or transform whole batches."
)


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the time that the training waited for batches with the time of the whole epoch.

    The check ignores trainings on synthetic samples, because reading the user's samples may take much more or less
    time.
    """
    if not recording.has_own_data:
        return
    for loader, first, second in _first_two_epochs(recording):
        if _mainly_waits_for_start(loader, first, second):
            yield _problem(
                loader,
                "Every epoch waits for its worker processes to start.",
                f"Two epochs of {loader} took {first.seconds:.1f} and {second.seconds:.1f} s. Waiting for the first "
                f"batch took {first.waits_s[0]:.1f} and {second.waits_s[0]:.1f} s of this time.",
                "Keep the workers between epochs: set persistent_workers=True.",
            )
        elif _waits_for_samples(recording, loader, first, second):
            yield from _slow_reading_problem(recording, loader, first, second)


def loaders_needing_workers(recording: Recording) -> Iterator[tuple[LoaderInfo, LoaderPass]]:
    """Yield each loader for which more workers may help, with the second training epoch of this loader."""
    for loader, first, second in _first_two_epochs(recording) if recording.has_own_data else ():
        if (
            not _mainly_waits_for_start(loader, first, second)
            and _waits_for_samples(recording, loader, first, second)
            and not is_in_memory(recording, loader, first)
            and (not loader.num_workers or _busy_share(recording, loader, second) >= _BUSY)
        ):
            yield loader, second


def _first_two_epochs(seen: Recording) -> Iterator[tuple[LoaderInfo, LoaderPass, LoaderPass]]:
    """Yield each loader with its first two training epochs. The function ignores epochs with fewer than 20 batches."""
    for series in seen.group_passes():
        epochs = [(loader, one) for loader, one in series if one.trains and len(one.sizes) >= _LEAST_BATCHES]
        if len(epochs) > 1:
            yield *epochs[0], epochs[1][1]


def _mainly_waits_for_start(loader: LoaderInfo, *epochs: LoaderPass) -> bool:
    starts_workers = bool(loader.num_workers) and not loader.persistent_workers
    return starts_workers and all(
        one.is_complete and one.waits_s[0] >= max(_LEAST_S, _LEAST_SHARE * one.seconds) for one in epochs
    )


def _waits_for_samples(seen: Recording, loader: LoaderInfo, first: LoaderPass, second: LoaderPass) -> bool:
    waits = all(sum(one.waits_s[1:]) >= max(_LEAST_S, _LEAST_SHARE * one.seconds) for one in (first, second))
    return waits and find_repeated_slow_reading(seen, [(loader, first), (loader, second)]) is None


def _busy_share(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> float:
    """Return the share of an epoch's time in which a worker reads samples, 0 to 1, as a mean over all workers."""
    return sum(task.seconds for task in seen.tasks_of(one)) / (loader.num_workers * one.seconds)


def _slow_reading_problem(seen: Recording, loader: LoaderInfo, first: LoaderPass, one: LoaderPass) -> Iterator[Problem]:
    waited = f"The training waited {sum(one.waits_s):.1f} of {one.seconds:.1f} s for {loader}"
    if is_in_memory(seen, loader, first):
        yield _problem(
            loader,
            "Training waits for samples that are already in memory, because the loader reads them one by one.",
            f"{waited}, whose samples are in memory.",
            "Keep the samples in tensors, and read whole batches at once. `chirp-migrate plan` shows whether a "
            "migration makes this change.",
        )
        return
    if not loader.num_workers:
        yield _problem(
            loader,
            "Training waits for samples, because the training process reads them itself.",
            f"{waited}, which has no workers. The process may use {pluralize(seen.cpus, 'CPU')}.",
            _fix_from_measurement(seen, loader)
            or "Read the samples in worker processes: set num_workers. `chirp-migrate tune` measures which number is "
            "best.",
        )
        return
    busy = _busy_share(seen, loader, one)
    if busy < _BUSY:
        return
    yield _problem(
        loader,
        "Training waits for samples, although all workers are busy with reading.",
        f"{waited}, and its {pluralize(loader.num_workers, 'worker')} read {100 * busy:.0f} % of the time.",
        _fix_from_measurement(seen, loader) or (_MORE_WORKERS if loader.num_workers < seen.cpus else _LESS_WORK),
    )


def _fix_from_measurement(seen: Recording, loader: LoaderInfo) -> str:
    """Return advice with the measured best number of workers; an empty string if this number was not measured."""
    tuned = seen.tuned
    if tuned is None or tuned.loader != loader.number:
        return ""
    tried = ", ".join(map(str, tuned.tried))
    if tuned.num_workers == loader.num_workers:
        return f"Other numbers of workers do not help (measured: {tried}). {_LESS_WORK}"
    return (
        f"Use num_workers={tuned.num_workers}: loading an epoch takes {tuned.best_s:.2f} s instead of "
        f"{tuned.now_s:.2f} s (without training, measured with {tried} workers)."
    )


def _problem(loader: LoaderInfo, message: str, evidence: str, fix: str) -> Problem:
    return Problem.at(loader.place, "waiting", message, evidence, fix)
