"""The interface between a loader and ``device``: where batches arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from chirpid_patch.loading.batch_reader import BatchReader


class Placement:
    """Puts the batches of one loader on ``device``. The loader refers to this object, but not the other way round."""

    device: torch.device
    #: Whether the samples themselves are on the device, so that batches are made there.
    is_held = False

    def attach(self, loader: Any) -> None:
        """Prepare for ``loader`` during its construction; raise ValueError for arguments that do not fit."""

    def begin_epoch(self, dataset: Any) -> None:
        """Prepare for an epoch that is read in this process."""

    def reader(self, loader: Any) -> BatchReader | None:
        """Return the reader of the batches of ``loader``; None: the host reads them."""
        return None

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of an epoch of ``loader``, on the device."""
        return batches

    def release(self) -> None:
        """Free the memory on the device until the next epoch, unless another loader uses it."""
