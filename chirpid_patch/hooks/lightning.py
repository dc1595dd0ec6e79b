"""Trainer hooks for Lightning, without depending on it (R-001)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
from chirpid_patch.hooks.trainer import TrainerHooks

_numbers = itertools.count()


def lightning_callback(hook: TrainerHooks | None = None) -> LightningHooks:
    """A Lightning callback that calls ``hook``, a new ``DataLoaderProfilingHook`` by default.

        trainer = lightning.Trainer(callbacks=[lightning_callback()])

    It inherits from the ``Callback`` of ``lightning.pytorch`` or ``pytorch_lightning`` if that is imported by now;
    Lightning itself is never imported here. Lightning moves a batch to its device before it calls its callbacks: the
    transfer is part of the wait.
    """
    modules = (sys.modules.get(name) for name in ("lightning.pytorch", "pytorch_lightning"))
    bases = [module.Callback for module in modules if module is not None]
    kind: Callable[[TrainerHooks], LightningHooks] = LightningHooks
    if bases:
        kind = type("LightningHooks", (LightningHooks, *bases), {"__doc__": LightningHooks.__doc__})
    return kind(hook or DataLoaderProfilingHook())


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """A hook that nobody uses here."""


class LightningHooks:
    """Hands what Lightning tells its callbacks on to a ``TrainerHooks``; made by ``lightning_callback``.

    Lightning asks a callback for every hook it knows: those that are not here do nothing.
    """

    def __init__(self, hook: TrainerHooks) -> None:
        super().__init__()
        self.hook = hook
        self._number = next(_numbers)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins."""
        self.hook.on_train_start(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training has ended."""
        self.hook.on_train_end(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """An epoch begins."""
        self.hook.on_epoch_start(trainer, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """An epoch has ended."""
        self.hook.on_epoch_end(trainer, trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch has come."""
        self.hook.on_train_batch_start(trainer, batch, batch_idx, 0, "train")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The step of a batch has ended."""
        self.hook.on_train_batch_end(trainer, batch, batch_idx, 0, "train", outputs)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins."""
        self.hook.on_validation_start(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation has ended."""
        self.hook.on_validation_end(trainer)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Nothing to set up."""

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Nothing to take down."""

    @property
    def state_key(self) -> str:
        """A name of its own in checkpoints, which hold nothing under it."""
        return f"LightningHooks{self._number}"

    @property
    def _legacy_state_key(self) -> str:
        return self.state_key

    def state_dict(self) -> dict[str, Any]:
        """Nothing that a checkpoint would have to keep."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return _do_nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, tuple[TrainerHooks]]:
        """Pickled for processes that Lightning starts: made anew there, from the hook."""
        return lightning_callback, (self.hook,)
