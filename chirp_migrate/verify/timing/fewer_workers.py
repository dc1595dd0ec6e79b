"""Fewer worker processes than a training asks for, where only its own code is of interest: the trial."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from chirp_migrate.training.watch.interception import Interception, workers_at_most
from chirpid_patch.loading.limits import worker_processes

__all__ = ["FewerWorkers"]


class FewerWorkers(Interception):
    """Context manager under which a loader starts at most so many workers; with 0 this process reads.

    Args:
        most: workers of a loader, at most.

    Attributes:
        asked: worker processes that the training would have started, had it been let, since the last :meth:`take`.
    """

    def __init__(self, most: int) -> None:
        super().__init__(self._start)
        self.asked = 0
        self._most = most
        self._kept: weakref.WeakSet[Any] = weakref.WeakSet()

    def take(self) -> int:
        """The workers asked for since the last call."""
        taken, self.asked = self.asked, 0
        return taken

    def _start(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not worker_processes(loader):
            return start()
        workers = loader.num_workers
        keeps = loader.persistent_workers or getattr(loader, "keep_workers", False)
        if not (keeps and loader in self._kept):
            self.asked += workers
        if keeps:
            self._kept.add(loader)
        with workers_at_most(loader, self._most):
            return start()
