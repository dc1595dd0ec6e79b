"""Simulate a training step on a GPU, for the option ``--simulate-step-ms``. The simulated step uses no CPU time.

A real model that computes on the CPUs would leave fewer CPUs for loading. So the tiny :class:`StandInModel` replaces
the model that ``verify`` finds in the project. The page docs/verify-measures.md describes simulated steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper
from chirp_migrate.verify.spec import StepCount
from chirpid_patch.loading.batch_timer import BatchTimer

_VALUES_READ = 64


class StandInModel(torch.nn.Module):
    """A model that computes very little: one linear layer on 64 values of each sample, at evenly spaced positions.

    The input has the shape (B, …) with any sample shape, and the output is logits of shape (B, num_classes). The
    constructor ignores all arguments except ``num_classes``, and ``forward`` ignores all arguments except ``x``.
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
    """Context manager in which each training step takes at least ``step_s`` seconds, as on a simulated device.

    A training step begins when the training receives a batch while gradients are enabled, and ends when the training
    requests the next batch. If the training requests the next batch too early, the context sleeps for the rest of the
    ``step_s`` seconds before it loads this batch. Enter this context after all other contexts that replace
    ``iter(loader)``, so that the times that the other contexts measure do not include the sleep.
    """

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self.step_s = step_s
        self._count = StepCount()

    def take(self) -> StepCount:
        """Return the number and durations of the simulated steps since the last call of this method."""
        taken, self._count = self._count, StepCount()
        return taken

    def end_step(self, own_work_s: float) -> None:
        """Count a simulated step in which the training itself took ``own_work_s`` seconds, and sleep until its end."""
        self._count.steps += 1
        self._count.own_work_s += own_work_s
        if own_work_s < self.step_s:
            time.sleep(self.step_s - own_work_s)
        else:
            self._count.overrun += 1

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        timer = BatchTimer()

        def around(advance: Callable[[], Any]) -> Any:
            """End the simulated step of the previous batch, then take the next batch."""
            own_work_s = timer.batch_requested()
            if own_work_s is not None:
                self.end_step(own_work_s)
            batch = advance()
            if torch.is_grad_enabled():
                timer.batch_arrived()
            return batch

        return LoaderIteratorWrapper(self, loader, start(), around)
