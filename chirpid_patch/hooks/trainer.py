"""Hooks that a trainer calls while it trains."""

from __future__ import annotations

from typing import Any


class TrainerHooks:
    """Hooks that a trainer calls while it trains. Each method does nothing; override those you need.

    ``trainer`` is the calling object. ``dataloader_idx`` and ``dataloader_name`` identify the loader of ``batch`` among
    several. ``metrics`` is the result of the step.
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
        """Run when a batch has arrived and its step begins."""

    def on_train_batch_end(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str, metrics: Any
    ) -> None:
        """Run when the step of a batch has ended, before the trainer requests the next batch."""

    def on_validation_start(self, trainer: Any) -> None:
        """Run when validation begins."""

    def on_validation_end(self, trainer: Any) -> None:
        """Run when validation has ended."""
