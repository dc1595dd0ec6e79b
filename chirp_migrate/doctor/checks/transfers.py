"""Find batches that are slow to copy to the device, because the memory of the batch is not pinned or not contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording

_MIB = 2**20


def check(recording: Recording) -> Iterator[Problem]:
    """Check the first training batch of each loader, if the batch is in CPU memory and the model is on another device.

    Memory that is not pinned is a problem only for loaders with workers. Without workers, pinning would not help,
    because the training would have to wait until the memory is pinned.
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
                    "The memory of this batch is not pinned.",
                    "Set pin_memory=True on the loader, and call batch.to(device, non_blocking=True).",
                )
            if one.strided:
                yield _problem(
                    loader,
                    one,
                    "Batches are not contiguous in memory, so each copy to the device must reorder the values first.",
                    f"The tensor at batch{one.strided[0]} is neither contiguous nor channels_last.",
                    "Transpose the batch on the device after the copy, or call .contiguous() on the batch in the "
                    "worker.",
                )
            break


def _problem(loader: LoaderInfo, one: LoaderPass, message: str, observation: str, fix: str) -> Problem:
    size = sum(one.moved.values()) / _MIB
    evidence = f"The first batch of {loader} has {size:.1f} MiB, and the model is on {one.device}. {observation}"
    return Problem.at(loader.place, "transfers", message, evidence, fix)
