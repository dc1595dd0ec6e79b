"""Find trainings that wait for workers to start, or for samples."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.checks.repeated_reading import find_repeated_slow_reading, is_in_memory
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_LEAST_BATCHES = 20
_LEAST_SHARE, _LEAST_S = 0.5, 1.0
_BUSY = 0.8
_LESS_WORK = "less work for each sample: decode once (docs/caching.md), transform whole batches."


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the waits for batches with the time of training epochs, for loaders of the user's own samples."""
    if not recording.has_own_data:
        return
    for loader, first, second in _first_two_epochs(recording):
        if _mainly_waits_for_start(loader, first, second):
            yield _problem(
                loader,
                "Every epoch waits for its worker processes to start.",
                f"The first batch of {loader} took {first.waits_s[0]:.1f} and {second.waits_s[0]:.1f} s in two epochs "
                f"of {first.seconds:.1f} and {second.seconds:.1f} s.",
                "Keep the workers: persistent_workers=True.",
            )
        elif _waits_for_samples(recording, loader, first, second):
            yield from _slow_reading_problem(recording, loader, first, second)


def loaders_needing_workers(recording: Recording) -> Iterator[tuple[LoaderInfo, LoaderPass]]:
    """Yield each loader that may need more workers, with its second training epoch."""
    for loader, first, second in _first_two_epochs(recording) if recording.has_own_data else ():
        if (
            not _mainly_waits_for_start(loader, first, second)
            and _waits_for_samples(recording, loader, first, second)
            and not is_in_memory(recording, loader, first)
            and (not loader.num_workers or _busy_share(recording, loader, second) >= _BUSY)
        ):
            yield loader, second


def _first_two_epochs(seen: Recording) -> Iterator[tuple[LoaderInfo, LoaderPass, LoaderPass]]:
    """Yield each loader with its first two training epochs, if these have at least 20 batches."""
    for series in seen.group_passes():
        epochs = [(loader, one) for loader, one in series if one.trains and len(one.sizes) >= _LEAST_BATCHES]
        if len(epochs) > 1:
            yield *epochs[0], epochs[1][1]


def _mainly_waits_for_start(loader: LoaderInfo, *epochs: LoaderPass) -> bool:
    return bool(loader.num_workers) and not loader.persistent_workers and all(map(_waits_for_start, epochs))


def _waits_for_start(one: LoaderPass) -> bool:
    return one.is_complete and one.waits_s[0] >= max(_LEAST_S, _LEAST_SHARE * one.seconds)


def _waits_for_samples(seen: Recording, loader: LoaderInfo, first: LoaderPass, second: LoaderPass) -> bool:
    waits = all(sum(one.waits_s[1:]) >= max(_LEAST_S, _LEAST_SHARE * one.seconds) for one in (first, second))
    return waits and find_repeated_slow_reading(seen, [(loader, first), (loader, second)]) is None


def _busy_share(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> float:
    """Return the mean share of an epoch in which a worker reads samples."""
    return sum(task.seconds for task in seen.tasks_of(one)) / (loader.num_workers * one.seconds)


def _slow_reading_problem(seen: Recording, loader: LoaderInfo, first: LoaderPass, one: LoaderPass) -> Iterator[Problem]:
    waited = f"The training waited {sum(one.waits_s):.1f} of {one.seconds:.1f} s for {loader}"
    if is_in_memory(seen, loader, first):
        yield _problem(
            loader,
            "Training waits for samples that are in memory already, because they are read one by one.",
            f"{waited}, whose samples are in memory.",
            "Keep the samples in tensors and read whole batches at once; `chirp-migrate plan` shows whether the loader "
            "factory can do this.",
        )
        return
    if not loader.num_workers:
        yield _problem(
            loader,
            "Training waits for samples, because the training process reads them itself.",
            f"{waited}, which has no workers; the process may use {pluralize(seen.cpus, 'CPU')}.",
            _fix_from_measurement(seen, loader)
            or "Read in worker processes: set num_workers. `chirp-migrate tune` measures which number is best.",
        )
        return
    busy = _busy_share(seen, loader, one)
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
        f"{waited}, and its {pluralize(loader.num_workers, 'worker')} read {100 * busy:.0f} % of the time.",
        _fix_from_measurement(seen, loader) or f"Use {more}{_LESS_WORK}",
    )


def _fix_from_measurement(seen: Recording, loader: LoaderInfo) -> str:
    """Return a fix with the best measured number of workers; an empty string if it was not measured."""
    tuned = seen.tuned
    if tuned is None or tuned.loader != loader.number:
        return ""
    tried = ", ".join(map(str, tuned.tried))
    if tuned.num_workers == loader.num_workers:
        return f"Other numbers of workers do not help (measured: {tried}). Use {_LESS_WORK}"
    return (
        f"Use num_workers={tuned.num_workers}: loading an epoch takes {tuned.best_s:.2f} s instead of "
        f"{tuned.now_s:.2f} s (without training, measured with {tried} workers)."
    )


def _problem(loader: LoaderInfo, message: str, evidence: str, fix: str) -> Problem:
    return Problem.at(loader.place, "waiting", message, evidence, fix)
