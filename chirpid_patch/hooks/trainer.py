"""What a trainer calls while it trains (R-001)."""

from __future__ import annotations

from typing import Any


class TrainerHooks:
    """What a trainer calls while it trains. Each method does nothing: override those you need.

    ``trainer`` is whatever calls; ``dataloader_idx`` and ``dataloader_name`` say which of several loaders ``batch``
    comes from; ``metrics`` is what the step gave.
    """

    def on_train_start(self, trainer: Any) -> None:
        """Training begins."""

    def on_train_end(self, trainer: Any) -> None:
        """Training has ended."""

    def on_epoch_start(self, trainer: Any, epoch: int) -> None:
        """An epoch begins: its first batch will be asked for."""

    def on_epoch_end(self, trainer: Any, epoch: int) -> None:
        """An epoch has ended."""

    def on_train_batch_start(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str
    ) -> None:
        """A batch has come; its step begins."""

    def on_train_batch_end(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str, metrics: Any
    ) -> None:
        """The step of a batch has ended; the next batch will be asked for."""

    def on_validation_start(self, trainer: Any) -> None:
        """Validation begins."""

    def on_validation_end(self, trainer: Any) -> None:
        """Validation has ended."""
