"""Where the batches of a loader come: what a loader asks, and ``device`` answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from chirpid_patch.loading.batch_reader import BatchReader


class Placement:
    """Brings the batches of one loader to ``device``, as a part of the loader: it refers to none."""

    device: torch.device
    #: Whether the samples themselves are on the device, so that batches are made there.
    is_held = False

    def attach(self, loader: Any) -> None:
        """Get ready for ``loader``, which is being made. Raises ValueError where its arguments do not go with this."""

    def begin_epoch(self, dataset: Any) -> None:
        """An epoch begins, read in this process."""

    def reader(self, loader: Any) -> BatchReader | None:
        """What reads the batches of ``loader``; None: what reads them on the host."""
        return None

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of an epoch of ``loader``, on the device."""
        return batches

    def release(self) -> None:
        """Free what is held on the device, unless another loader uses it, until the next epoch."""
