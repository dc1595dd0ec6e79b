"""Detect the beginnings of epochs, from the loaders that a training iterates over."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Pacing"]


class Pacing:
    """Detects when an epoch begins: when the training iterates again over its first training loader.

    The first training loader is the first loader that is iterated over twice with gradients enabled. If the training
    builds a new loader for every epoch, loaders with the same dataset count as one loader. The first loader of a
    dataset may only compute statistics, and the second loader may begin the training, so the third loader of a dataset
    begins an epoch.
    """

    def __init__(self) -> None:
        self._met: dict[int, list[Any]] = {}  # id of a dataset → the dataset and its loaders, in order of first use
        self._pacing: Any = None

    def begins_epoch(self, loader: Any) -> bool:
        """Return whether the iteration over ``loader`` that starts now begins a second or later epoch."""
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
