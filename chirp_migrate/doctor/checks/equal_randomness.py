"""Find random generators that start from the same state in several workers or epochs."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import shorten_list
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import FetcherPassRecord, LoaderInfo, LoaderPass, Recording

_GLOBAL = {"random", "numpy.random", "torch"}


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the states of random generators between workers and epochs, before and after the first training batch.

    If two generators have equal states before the batch, and equal but changed states after the batch, both generators
    drew the same random numbers. The check skips iterable datasets, because their workers may start from the same state
    on purpose. For example, all workers may shuffle the indices in the same way, so that each worker can read a
    different part of the shuffled indices.
    """
    for passes in recording.group_training_passes():
        yield from _find_repeated_randomness(recording, passes)


def _find_repeated_randomness(seen: Recording, passes: list[tuple[LoaderInfo, LoaderPass]]) -> Iterator[Problem]:
    loader, first = passes[0]
    runs = _runs_with_generators(seen, first)
    later = [_runs_with_generators(seen, one) for _, one in passes[1:]]
    by_worker = _equal_generators(runs, runs[1:]) if len(runs) > 1 else []
    by_epoch = (
        _equal_generators(runs, [run for each in later for run in each if run.worker == runs[0].worker]) if runs else []
    )
    kinds: dict[tuple[bool, bool, bool], list[str]] = {}
    for name in dict.fromkeys([*by_worker, *by_epoch]):
        kinds.setdefault((name in _GLOBAL, name in by_worker, name in by_epoch), []).append(name)
    for (is_global, in_workers, in_epochs), names in kinds.items():
        held = "the generators" if len(names) > 1 else "the generator"
        whose = shorten_list(names, 2) if is_global else f"{held} {shorten_list(names, 2)}"
        place = loader.place if is_global or not loader.dataset_place.file else loader.dataset_place
        epochs = f"both epochs begin with the same state of {whose}" if in_epochs else ""
        if in_workers:
            message = f"All worker processes draw the same random numbers from {whose}, so augmentation repeats."
            also = f"; {epochs}" if epochs else ""
            evidence = (
                f"The generator states of {len(runs)} workers of {loader} were equal before their first batch, and "
                f"this batch changed them to equal states{also}."
            )
        else:
            message = f"Every epoch draws the same random numbers from {whose}, so augmentation repeats."
            evidence = f"In {loader}, {epochs}, and the first batch changes this state in the same way."
        yield Problem.at(place, "equal-randomness", message, evidence, _describe_fix(is_global, runs[0].worker >= 0))


def _runs_with_generators(seen: Recording, one: LoaderPass) -> list[FetcherPassRecord]:
    return [run for run in seen.runs_of(one) if run.tasks and run.tasks[0].generators]


def _equal_generators(runs: list[FetcherPassRecord], others: list[FetcherPassRecord]) -> list[str]:
    """Return the names of generators that drew the same random numbers in ``runs[0]`` and in all of ``others``.

    In all these recordings, such a generator has the same state before the first batch, and the same changed state
    after this batch.
    """
    if not others:
        return []
    before, after = runs[0].generators, runs[0].tasks[0].generators
    return [
        name
        for name, state in before.items()
        if after.get(name) not in (None, state)
        and all(run.generators.get(name) == state for run in others)
        and all(run.tasks[0].generators.get(name) == after[name] for run in others)
    ]


def _describe_fix(is_global: bool, in_workers: bool) -> str:
    if not in_workers:
        return "Set the seed only once, before the first epoch."
    if is_global:
        return (
            "Remove worker_init_fn, because PyTorch seeds each worker. Or seed with torch.initial_seed() in "
            "worker_init_fn, because this seed is different for each worker and epoch."
        )
    return (
        "Create the generator in the worker and seed it with get_worker_info().seed, or use the global generators of "
        "PyTorch."
    )
