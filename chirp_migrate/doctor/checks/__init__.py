"""List the checks of ``doctor``. Each module has a function ``check`` that yields the problems in a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from chirp_migrate.doctor.checks import (
    copied_data,
    double_precision,
    duplicated_samples,
    equal_randomness,
    frozen_copy,
    handles,
    last_batch,
    lost_cache,
    memory,
    not_picklable,
    order,
    overlap,
    repeated_reading,
    shared_handle,
    statistics_of_all,
    threads,
    transfers,
    unguarded_main,
    validation_varies,
    waiting,
)
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording

Check = Callable[[Recording], Iterator[Problem]]

CHECKS: tuple[Check, ...] = (
    unguarded_main.check,
    duplicated_samples.check,
    equal_randomness.check,
    order.check,
    validation_varies.check,
    overlap.check,
    statistics_of_all.check,
    last_batch.check,
    frozen_copy.check,
    lost_cache.check,
    threads.check,
    handles.check,
    shared_handle.check,
    memory.check,
    waiting.check,
    repeated_reading.check,
    double_precision.check,
    transfers.check,
    copied_data.check,
    not_picklable.check,
)
"""All checks. The report lists the problems in the order of the checks."""


def find_problems(recordings: Iterable[Recording]) -> list[Problem]:
    """Run all checks on all recordings.

    A problem that occurs in several entry points (training functions or scripts) appears once in the result.
    """
    found: dict[tuple[str, str, int, str], Problem] = {}
    for recording in recordings:
        for check in CHECKS:
            for problem in check(recording):
                key = problem.check, problem.path, problem.line, problem.message
                known = found.setdefault(key, problem)
                labels = dict.fromkeys([*known.entry_points, recording.label])
                found[key] = msgspec.structs.replace(known, entry_points=tuple(labels))
    return list(found.values())
