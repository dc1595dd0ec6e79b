"""Find batches that take long to copy to the device, because their memory is not pinned or not contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_MIB = 2**20


def check(recording: Recording) -> Iterator[Problem]:
    """Check the first batch of each training pass whose model is on another device than the batch.

    Memory that is not pinned is a problem only for loaders with workers. Without workers, the training itself would
    have to wait for pinning.
    """
    for loader in recording.loaders:
        for one in recording.passes_of_loader(loader):
            if not one.trains or not one.moved or one.device in ("", "cpu"):
                continue
            if loader.num_workers and not one.is_pinned:
                yield _problem(
                    loader,
                    one,
                    "Batches are copied to the device from pageable memory, so training waits for each copy, and "
                    "non_blocking=True has no effect.",
                    "is in memory that is not pinned",
                    "Set pin_memory=True on the loader, and call batch.to(device, non_blocking=True).",
                )
            if one.strided:
                yield _problem(
                    loader,
                    one,
                    "Batches are views whose values are out of order in memory, so each copy to the device reorders "
                    "them first.",
                    f"the tensor at batch{one.strided[0]} is neither contiguous nor channels_last",
                    "Transpose on the device, after the copy, or call .contiguous() on the batch in the worker.",
                )
            break


def _problem(loader: LoaderInfo, one: LoaderPass, message: str, what: str, fix: str) -> Problem:
    size = sum(one.moved.values()) / _MIB
    evidence = f"The first batch of {loader} has {size:.1f} MiB, and {what}; the model is on {one.device}."
    return Problem.at(loader.place, "transfers", message, evidence, fix)
