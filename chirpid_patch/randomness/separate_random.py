"""Random streams of their own for user code that a worker process would have run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class SeparateRandomness:
    """Global random generators as a worker would have them, swapped in while user code runs in this process.

    Code that was written for worker processes draws from their generators, never from the training process's;
    when it has to run here instead, the training's own random streams must not move.
    """

    def __init__(self, seed: int) -> None:
        self._states: tuple[Any, Any, Any] | None = None
        self._seed = seed

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within the context ``random``, ``numpy.random`` and torch's CPU generator are the separate ones."""
        outside = _states()
        if self._states is None:
            torch.default_generator.manual_seed(self._seed)
            random.seed(self._seed)
            np.random.seed(np.random.SeedSequence(self._seed).generate_state(4))
        else:
            _restore(self._states)
        try:
            yield
        finally:
            self._states = _states()
            _restore(outside)


def _states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _restore(states: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
