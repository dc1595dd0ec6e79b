"""Find datasets whose data is pickled and copied to every worker process."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording

_MIB = 2**20
_LEAST_BYTES = 64 * _MIB


def check(recording: Recording) -> Iterator[Problem]:
    """Report loaders that pickle at least 64 MiB for each worker process (with ``spawn`` or ``forkserver``)."""
    for loader in recording.loaders:
        starts = sorted(
            {run.started_in for one in recording.passes_of_loader(loader) for run in recording.runs_of(one)}
        )
        if loader.start_method == "fork" or loader.sent_bytes < _LEAST_BYTES or not starts:
            continue
        workers = pluralize(loader.num_workers, "worker")
        size = loader.sent_bytes / _MIB
        times = "in two epochs" if len(starts) > 1 else "in one epoch"
        yield Problem.at(
            loader.dataset_place if loader.dataset_place.file else loader.place,
            "copied-data",
            f"Every start of a worker copies {size:,.0f} MiB of {loader.dataset}, and each worker keeps its own copy.",
            f"{loader} started {workers} with {loader.start_method} {times}, so pickle copied "
            f"{size * loader.num_workers * len(starts):,.0f} MiB.",
            "Keep the data in torch tensors, which workers share, or in a memory-mapped file that each worker opens. "
            "Or set persistent_workers=True, so that the workers start only once.",
        )
