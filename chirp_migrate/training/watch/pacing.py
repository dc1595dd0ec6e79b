"""Detection of the beginnings of epochs, from the objects that a training iterates over."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Pacing"]


class Pacing:
    """Finds the loader that paces a training call: the first that is iterated over again with gradients enabled.

    A loader that is built again for every epoch is identified by its dataset. The second loader of a dataset may be the
    first of the training, after a loader for statistics. The third loader begins an epoch.
    """

    def __init__(self) -> None:
        self._met: dict[int, list[Any]] = {}  # by dataset: the dataset, then its loaders in the order of first use
        self._pacing: Any = None

    def begins_epoch(self, loader: Any) -> bool:
        """Return whether iteration over a loader, which starts now, begins a second or later epoch."""
        if not torch.is_grad_enabled():
            return False
        dataset = getattr(loader, "dataset", loader)
        known = self._met.setdefault(id(dataset), [dataset])
        again = any(one is loader for one in known[1:])
        if not again:
            known.append(loader)
        if self._pacing is None and (again or len(known) > 3):
            self._pacing = loader if again else dataset
        return self._pacing is not None and (self._pacing is loader or self._pacing is dataset)
