"""A Lightning callback that calls trainer hooks. Lightning is imported only when a callback is created."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
from chirpid_patch.hooks.trainer import TrainerHooks


def lightning_callback(hook: TrainerHooks | None = None) -> Any:
    """Return a Lightning callback that calls ``hook``.

        trainer = lightning.Trainer(callbacks=[lightning_callback()])

    The callback inherits from ``Callback`` of ``lightning.pytorch`` or of ``pytorch_lightning``. The function prefers
    the package that the program has already imported. Lightning moves a batch to the device before it calls its
    callbacks. So the measured wait for a batch includes the transfer.

    Args:
        hook: the hook to call; None: a new ``DataLoaderProfilingHook``.

    Raises:
        ModuleNotFoundError: neither package is installed.
    """
    return _callback_class(_lightning())(hook or DataLoaderProfilingHook())


def _lightning() -> str:
    """Return the name of the Lightning package that is imported, or else of the package that is installed."""
    packages = ("lightning", "pytorch_lightning")
    found = next((name for name in packages if name in sys.modules), None)
    found = found or next((name for name in packages if find_spec(name)), None)
    if found is None:
        raise ModuleNotFoundError("lightning_callback needs Lightning: install lightning, or use TrainerHooks alone")
    return "lightning.pytorch" if found == "lightning" else found


@cache
def _callback_class(module: str) -> Any:
    """Return a callback class that inherits from ``Callback`` of the package ``module``."""
    base: Any = import_module(module).Callback

    class LightningHooks(base):  # type: ignore[misc]
        """A Lightning callback that passes each call to a ``TrainerHooks``."""

        def __init__(self, hook: TrainerHooks) -> None:
            super().__init__()
            self.hook = hook

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_train_start(trainer)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_train_end(trainer)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_epoch_start(trainer, trainer.current_epoch)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_epoch_end(trainer, trainer.current_epoch)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.hook.on_train_batch_start(trainer, batch, batch_idx, 0, "train")

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.hook.on_train_batch_end(trainer, batch, batch_idx, 0, "train", outputs)

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_validation_start(trainer)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self.hook.on_validation_end(trainer)

        def __reduce__(self) -> tuple[Any, tuple[TrainerHooks]]:
            """Pickle only the hook. Unpickling creates a new callback with the hook."""
            return lightning_callback, (self.hook,)

    return LightningHooks
