"""Find dataset attributes that change in the training process while persistent workers keep the old value."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording


def check(recording: Recording) -> Iterator[Problem]:
    """Compare the dataset's attributes with their copies in persistent workers, at the beginning of later epochs."""
    for loader in recording.loaders:
        if not loader.persistent_workers or not loader.num_workers:
            continue
        first, *later = recording.passes_of_loader(loader)
        reported: set[str] = set()
        for one in later:
            copies = [run.values for run in recording.runs_of(one) if run.epoch > 0]
            if len(copies) < loader.num_workers:
                continue
            for path, now in one.values.items():
                before = first.values.get(path)
                if before in (None, now) or path in reported or any(copy.get(path) != before for copy in copies):
                    continue
                reported.add(path)
                yield Problem.at(
                    loader.dataset_place if loader.dataset_place.file else loader.place,
                    "frozen-copy",
                    f"{path} changes in the training process, but the persistent workers keep the old value.",
                    f"At the beginning of a later epoch, {path} was {now} in the training process and {before} in "
                    f"{pluralize(len(copies), 'worker')} ({loader}).",
                    "Keep the value in shared memory (a torch tensor after share_memory_(), or multiprocessing."
                    "Value), or use persistent_workers=False.",
                )
