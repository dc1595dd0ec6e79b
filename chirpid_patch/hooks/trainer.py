"""Hooks that a trainer calls during a training."""

from __future__ import annotations

from typing import Any


class TrainerHooks:
    """Hooks that a trainer calls during a training. All methods do nothing. Override the methods that you need.

    The argument ``trainer`` is the object that calls the hook. If the trainer uses several loaders, ``dataloader_idx``
    and ``dataloader_name`` identify the loader of ``batch``. ``metrics`` is the result of the training step.
    """

    def on_train_start(self, trainer: Any) -> None:
        """Run when training begins."""

    def on_train_end(self, trainer: Any) -> None:
        """Run when training has ended."""

    def on_epoch_start(self, trainer: Any, epoch: int) -> None:
        """Run when an epoch begins, before the trainer requests its first batch."""

    def on_epoch_end(self, trainer: Any, epoch: int) -> None:
        """Run when an epoch has ended."""

    def on_train_batch_start(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str
    ) -> None:
        """Run when a batch has arrived, before its training step begins."""

    def on_train_batch_end(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str, metrics: Any
    ) -> None:
        """Run when the training step of a batch has ended, before the trainer requests the next batch."""

    def on_validation_start(self, trainer: Any) -> None:
        """Run when validation begins."""

    def on_validation_end(self, trainer: Any) -> None:
        """Run when validation has ended."""
