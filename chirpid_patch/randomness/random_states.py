"""Random generators put back as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from chirpid_patch.data.held_objects import GENERATORS, held_objects


@contextmanager
def unmoved_generators(*owners: Any) -> Iterator[None]:
    """Within the context anything may be drawn; afterwards every generator is as before.

    That is: Python's, NumPy's and PyTorch's global CPU generators, those found in ``owners`` (loaders, samplers,
    datasets, transforms, functions) and in what they hold, and those that are globals of the modules these come from.
    """
    held = [(generator, generator_state(generator)) for generator in held_generators(*owners)]
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for generator, state in held:
                restore_generator(generator, state)


def held_generators(*owners: Any) -> list[Any]:
    """The generators among ``owners`` and in what they hold, each once; those without a state are left out."""
    found = held_objects(owners)
    return [part for part in found if isinstance(part, GENERATORS) and not isinstance(part, random.SystemRandom)]


def generator_state(generator: Any) -> Any:
    """The state of a generator of PyTorch, NumPy or Python."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    return generator.getstate()


def restore_generator(generator: Any, state: Any) -> None:
    """Give a generator the state that ``generator_state`` told."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
