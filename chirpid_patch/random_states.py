"""Random generators put back as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

_DEEPEST = 8
#: Longer sequences hold samples or indices, not generators.
_MOST_ITEMS = 64


@contextmanager
def unmoved_generators(*owners: Any) -> Iterator[None]:
    """Within the context anything may be drawn; afterwards every generator is as before.

    That is: Python's, NumPy's and PyTorch's global CPU generators, and those found in the attributes of ``owners``
    (loaders, samplers, datasets, transforms) and of what they hold.
    """
    held: list[tuple[Any, Any]] = []
    seen: set[int] = set()
    for owner in owners:
        _collect(owner, held, seen, _DEEPEST)
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for generator, state in held:
                _restore(generator, state)


def _collect(owner: Any, found: list[tuple[Any, Any]], seen: set[int], depth: int) -> None:
    """Add the generators that ``owner`` is or holds, with their states, to ``found``."""
    if id(owner) in seen or depth == 0:
        return
    seen.add(id(owner))
    if isinstance(owner, torch.Generator | np.random.RandomState):
        found.append((owner, owner.get_state()))
    elif isinstance(owner, np.random.Generator):
        found.append((owner, owner.bit_generator.state))
    elif isinstance(owner, random.Random):
        found.append((owner, owner.getstate()))
    elif isinstance(owner, list | tuple) and len(owner) <= _MOST_ITEMS:
        for part in owner:
            _collect(part, found, seen, depth - 1)
    elif isinstance(owner, Dataset | DataLoader | Sampler) or callable(owner):
        for part in list(getattr(owner, "__dict__", {}).values()):
            _collect(part, found, seen, depth - 1)


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
