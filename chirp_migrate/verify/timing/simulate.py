"""A device step that uses no CPU, for machines without the device: ``--simulate-step-ms`` (simulated, never measured).

On a GPU the training loop hands a batch over and waits; the CPUs are free for loading meanwhile. Here the loop waits
as long as the user says: from the moment a training batch arrives to the moment the next one is asked for, at least
the step's time passes, and what is missing of it is slept. The model's own CPU work would take CPUs that a GPU leaves
free, so a model that is found in the backend is replaced by :class:`StandInModel` in every pass; what its training
takes of the CPU runs within the step, as the launching of kernels does. A training call of the user's own keeps its
model: work beyond the step's time then counts as an overrun, and the report says how many steps had one.
Validation batches take no step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from chirp_migrate.training.watch.interception import Interception, PassingIterator
from chirp_migrate.verify.spec import StepCount
from chirpid_patch.loading.batch_timer import BatchTimer

__all__ = ["SimulatedSteps", "StandInModel"]

_VALUES_READ = 64


class StandInModel(torch.nn.Module):
    """A model of next to no work: 64 values spread evenly over each sample, and one linear layer.

    Takes (B, …) with any sample shape and gives (B, num_classes) logits. Other arguments are accepted and ignored.
    """

    def __init__(self, num_classes: int = 1000, *_others: Any, **_named: Any) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(_VALUES_READ, num_classes)

    def forward(self, x: torch.Tensor, *_others: Any, **_named: Any) -> torch.Tensor:
        """Logits of a batch."""
        rows = x.reshape(len(x), -1)
        places = torch.linspace(0, rows.shape[1] - 1, _VALUES_READ, device=x.device).long()
        logits: torch.Tensor = self.fc(rows[:, places].to(self.fc.weight.dtype))
        return logits


class SimulatedSteps(Interception):
    """Context manager under which each training batch is followed by a step of ``step_s`` seconds.

    A batch is a training batch when gradients are enabled as it is taken. Enter it after other interceptions, so
    that they do not see the sleep.
    """

    def __init__(self, step_s: float) -> None:
        super().__init__(self._step)
        self.step_s = step_s
        self._count = StepCount()
        self._active = True

    def take(self) -> StepCount:
        """Return the steps since the last call."""
        taken, self._count = self._count, StepCount()
        return taken

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Loaders first asked for batches in this context have no steps."""
        self._active = False
        try:
            yield
        finally:
            self._active = True

    def worked(self, own_work_s: float) -> None:
        """Count a step whose training did this much work of its own, and sleep for the rest of it."""
        self._count.steps += 1
        self._count.own_work_s += own_work_s
        if own_work_s < self.step_s:
            time.sleep(self.step_s - own_work_s)
        else:
            self._count.overrun += 1

    def _step(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self._active:
            return start()
        timer = BatchTimer()

        def around(advance: Callable[[], Any]) -> Any:
            """Ends the step of the batch before, then takes the next batch."""
            own_work_s = timer.ask()
            if own_work_s is not None:
                self.worked(own_work_s)
            batch = advance()
            if torch.is_grad_enabled():
                timer.arrive()
            return batch

        return PassingIterator(self, loader, start(), around)
