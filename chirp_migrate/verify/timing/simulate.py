"""A device step that uses no CPU, for machines without the device: ``--simulate-step-ms`` (simulated, never measured).

On a GPU the training loop hands over a batch and waits, and the CPUs are free for loading meanwhile. In a simulation,
at least the time of a step passes from the arrival of a training batch to the request of the next; the loop sleeps for
the missing part. The model's own work would use CPUs that are free in a training on a GPU. So :class:`StandInModel`
replaces a model that is found in the backend, in every pass. Its CPU work is part of the step, like the launching of
kernels. The user's own training call keeps its model: work beyond the time of the step then counts as an overrun, and
the report has the number of overruns. Validation batches have no step.
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
    """A model with very little work: one linear layer on 64 values that are spread evenly over each sample.

    It takes (B, …) with any sample shape and returns logits (B, num_classes). Other arguments are accepted and ignored.
    """

    def __init__(self, num_classes: int = 1000, *_others: Any, **_named: Any) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(_VALUES_READ, num_classes)

    def forward(self, x: torch.Tensor, *_others: Any, **_named: Any) -> torch.Tensor:
        """Return the logits of a batch."""
        rows = x.reshape(len(x), -1)
        places = torch.linspace(0, rows.shape[1] - 1, _VALUES_READ, device=x.device).long()
        logits: torch.Tensor = self.fc(rows[:, places].to(self.fc.weight.dtype))
        return logits


class SimulatedSteps(Interception):
    """Context manager under which each training batch is followed by a step of ``step_s`` seconds.

    A batch is a training batch if gradients are enabled when it is taken. Enter it after other interceptions, so that
    they do not see the sleep.
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
        """Return a context; loaders whose first batch is requested in it have no steps."""
        self._active = False
        try:
            yield
        finally:
            self._active = True

    def worked(self, own_work_s: float) -> None:
        """Count a step with this time of the training's own work, and sleep for the rest of the step."""
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
            """End the step of the previous batch, then take the next batch."""
            own_work_s = timer.ask()
            if own_work_s is not None:
                self.worked(own_work_s)
            batch = advance()
            if torch.is_grad_enabled():
                timer.arrive()
            return batch

        return PassingIterator(self, loader, start(), around)
