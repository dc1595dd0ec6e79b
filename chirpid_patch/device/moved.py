"""Batches that are loaded as ever, and brought to a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from chirpid_patch.device.prefetch import DevicePrefetcher, asked_early_unnoticed
from chirpid_patch.loading.placement import Placement


class MovedTo(Placement):
    """Batches come on ``device``, by a ``DevicePrefetcher``.

    Where no random number moves by it, a batch is asked for while the one before is trained on; a change of the dataset
    within an epoch then counts one batch later.

    Raises ValueError if ``device`` is a CUDA device and there is none.
    """

    def __init__(self, device: str | torch.device) -> None:
        self.device = torch.device(device)
        self._source = _Source()
        self._moving = DevicePrefetcher(self._source, self.device)

    def attach(self, loader: Any) -> None:
        """Any loader will do."""

    def begin_epoch(self, dataset: Any) -> None:
        """Nothing to do: samples are read on the host."""

    def reader(self, loader: Any) -> None:
        """None: samples are read on the host."""

    def release(self) -> None:
        """Nothing is held."""

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """``batches``, moved."""
        self._moving.lookahead = asked_early_unnoticed(loader, in_memory=True)
        self._source.batches = batches
        return iter(self._moving)


class _Source:
    """What the prefetcher iterates over: no reference to the loader, whose workers end when nobody refers to it."""

    batches: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        batches, self.batches = self.batches, None
        assert batches is not None
        return batches
