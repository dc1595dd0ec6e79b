"""The interface through which a loader puts its batches on a device.

The package ``chirpid_patch.device`` implements the interface.
"""

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
        """Prepare for an epoch over ``dataset``.

        The loader calls this method only if this process reads the samples, without workers.
        """

    def reader(self, loader: Any) -> BatchReader | None:
        """Return the object that reads the batches of ``loader``.

        If the result is None, the loader reads its batches on the CPU, and ``deliver`` moves the batches to the device.
        """
        return None

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator that yields each of ``batches`` on the device.

        ``batches`` are the batches of ``loader`` in one epoch.
        """
        return batches

    def release(self) -> None:
        """Free the samples on the device, except samples that other loaders use.

        The next epoch copies the freed samples again.
        """
