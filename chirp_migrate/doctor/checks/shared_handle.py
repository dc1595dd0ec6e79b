"""Find files that the dataset opened before the workers were forked, so that the workers share the read position."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording

_LEAST_POSITIONS = 3


def check(recording: Recording) -> Iterator[Problem]:
    """Check whether the read positions of the dataset's open files change in the training process while workers read.

    The training process itself does not read these files. So if a read position changes in the training process, the
    workers share the open file with this process.
    """
    for loader in recording.loaders:
        reported: set[str] = set()
        for one in recording.passes_of_loader(loader):
            workers = sum(bool(run.tasks) for run in recording.runs_of(one) if run.worker >= 0)
            for path, positions in one.positions.items():
                if workers < 2 or len(set(positions)) < _LEAST_POSITIONS or path in reported:
                    continue
                reported.add(path)
                yield Problem.at(
                    loader.dataset_place if loader.dataset_place.file else loader.place,
                    "shared-handle",
                    f"{path} was opened before the workers were forked, so each worker moves the position at which the "
                    "other workers read.",
                    f"While {workers} workers of {loader} read, the file offset of {path} in the training process "
                    f"changed to {len(set(positions))} different values.",
                    "Open the file in the worker: on first use in __getitem__, not in __init__.",
                )
