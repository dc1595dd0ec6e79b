"""Let Lightning validate although a training epoch ends early."""

from __future__ import annotations

import sys
from typing import Any

_LOOPS = ("lightning.pytorch.loops", "pytorch_lightning.loops")


def limit_lightning_validation(batches: int) -> bool:
    """Let Lightning validate after this number of batches of the present epoch.

    Lightning validates after a fixed number of batches. If a loader ends earlier, Lightning skips the validation, and
    callbacks that need its metrics raise errors.

    Returns:
        Whether Lightning runs the training, and validates after a number of batches.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith(_LOOPS):
            trainer: Any = getattr(frame.f_locals.get("self"), "trainer", None)
            if isinstance(getattr(trainer, "val_check_batch", None), int):
                trainer.val_check_batch = batches
                return True
    return False
