"""The interface through which a loader puts its batches on a device. The package ``device`` has the implementations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from chirpid_patch.loading.batch_reader import BatchReader


class Placement:
    """An object that puts the batches of a loader on ``device``. The object keeps no reference to the loader."""

    device: torch.device
    #: Whether the samples are stored on the device. If True, batches are also built on the device.
    is_held = False

    def attach(self, loader: Any) -> None:
        """Check the arguments of ``loader``. The loader's constructor calls this method.

        Raises:
            ValueError: the placement does not support an argument of the loader.
        """

    def begin_epoch(self, dataset: Any) -> None:
        """Prepare for an epoch in which this process reads ``dataset``."""

    def reader(self, loader: Any) -> BatchReader | None:
        """Return the object that reads the batches of ``loader``.

        The result is None if the loader must read its batches on the CPU.
        """
        return None

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator that puts ``batches``, the batches of an epoch of ``loader``, on the device."""
        return batches

    def release(self) -> None:
        """Free the samples on the device, except samples that other loaders use.

        The next epoch copies the freed samples again.
        """
