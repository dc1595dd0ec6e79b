"""The surroundings of a worker process, for user code that one would have run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class AsInWorker:
    """Global state as a worker process has it, swapped in while user code runs in this process.

    Code that was written for worker processes draws from their random generators, never from the training process's;
    when it has to run here instead, the training's own random streams must not move. And a worker computes with one
    thread: sums over large tensors differ in the last bits with two.
    """

    def __init__(self, seed: int) -> None:
        self._states: tuple[Any, Any, Any] | None = None
        self._seed = seed
        #: Whether anything was drawn the last time.
        self.has_drawn = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within the context ``random``, ``numpy.random`` and torch's CPU generator are the separate ones."""
        outside, threads = _states(), torch.get_num_threads()
        if self._states is None:
            torch.default_generator.manual_seed(self._seed)
            random.seed(self._seed)
            np.random.seed(np.random.SeedSequence(self._seed).generate_state(4))
            self._states = _states()
        else:
            _restore(self._states)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            before, self._states = self._states, _states()
            self.has_drawn = not _are_equal(before, self._states)
            _restore(outside)


def _states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _restore(states: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def _are_equal(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> bool:
    numpy, numpy_other = one[1], other[1]
    return (
        torch.equal(one[0], other[0])
        and one[2] == other[2]
        and numpy[2:] == numpy_other[2:]
        and np.array_equal(numpy[1], numpy_other[1])
    )
