"""What a trainer calls while it trains (R-001)."""

from __future__ import annotations

from collections.abc import Iterable
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


class HookManager:
    """Calls hooks in the order they were registered; what a hook raises is the caller's to see.

        trainer.hook_manager = HookManager()
        trainer.hook_manager.register_hook(DataLoaderProfilingHook())
        trainer.hook_manager.call_hook("on_epoch_start", trainer, epoch)

    Attributes:
        hooks: those registered, in order.
    """

    def __init__(self, hooks: Iterable[TrainerHooks] = ()) -> None:
        self.hooks: list[TrainerHooks] = []
        for hook in hooks:
            self.register_hook(hook)

    def register_hook(self, hook: TrainerHooks) -> None:
        """Have ``hook`` called from now on.

        Raises:
            TypeError: it is not an object of a class that inherits from ``TrainerHooks``.
        """
        if not isinstance(hook, TrainerHooks):
            given = f"the class {hook.__name__}" if isinstance(hook, type) else f"a {type(hook).__name__}"
            raise TypeError(f"register an object of a class that inherits from TrainerHooks, not {given}")
        self.hooks.append(hook)

    def remove_hook(self, hook: TrainerHooks) -> None:
        """Have ``hook`` called no longer. Raises ValueError where it is not registered."""
        self.hooks.remove(hook)

    def call_hook(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call the method ``name`` of every hook. Raises AttributeError where a hook has no such method."""
        for hook in self.hooks:
            getattr(hook, name)(*args, **kwargs)
