"""Random generators put back as they were."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_DEEPEST = 8
#: Longer sequences hold samples or indices, not generators.
_MOST_ITEMS = 64
_MOST_VISITED = 20_000
_KINDS = (torch.Generator, np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random)


@contextmanager
def unmoved_generators(*owners: Any) -> Iterator[None]:
    """Within the context anything may be drawn; afterwards every generator is as before.

    That is: Python's, NumPy's and PyTorch's global CPU generators, those found in ``owners`` (loaders, samplers,
    datasets, transforms, functions) and in what they hold, and those that are globals of the modules these come from.
    """
    held = [(generator, _state(generator)) for generator in _generators(owners)]
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for generator, state in held:
                _restore(generator, state)


def _generators(owners: Iterable[Any]) -> Iterator[Any]:
    """The generators among ``owners`` and in what they hold, each once."""
    waiting = deque((owner, _DEEPEST) for owner in owners)
    seen: dict[int, Any] = {}  # keeps what it has seen, so that no other object gets its id
    while waiting and len(seen) < _MOST_VISITED:
        owner, depth = waiting.popleft()
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner
        if isinstance(owner, _KINDS):
            if not isinstance(owner, random.SystemRandom):  # which has no state
                yield owner
        elif depth:
            waiting.extend((part, depth - 1) for part in _parts(owner))


def _parts(owner: Any) -> list[Any]:
    """What ``owner`` holds that may be, or hold, a generator."""
    if owner is None or isinstance(owner, str | bytes | int | float | type | torch.Tensor | np.ndarray):
        return []
    if isinstance(owner, ModuleType):
        return [value for value in list(vars(owner).values()) if isinstance(value, _KINDS)]
    if isinstance(owner, dict):
        return list(owner.values()) if len(owner) <= _MOST_ITEMS else []
    if isinstance(owner, list | tuple | set | frozenset | deque):
        return list(owner) if len(owner) <= _MOST_ITEMS else []
    if isinstance(owner, partial):
        return [owner.func, *owner.args, *owner.keywords.values()]
    if isinstance(owner, MethodType):
        return [owner.__self__, owner.__func__]
    if isinstance(owner, BuiltinFunctionType):
        return [owner.__self__]
    if isinstance(owner, FunctionType):
        cells = [cell.cell_contents for cell in owner.__closure__ or () if _is_filled(cell)]
        defaults = [*(owner.__defaults__ or ()), *(owner.__kwdefaults__ or {}).values()]
        return [*cells, *defaults, sys.modules.get(owner.__module__)]
    kinds = type(owner).__mro__
    slots = [getattr(owner, name, None) for kind in kinds for name in _slots(kind)]
    return [*slots, *getattr(owner, "__dict__", {}).values(), *(sys.modules.get(kind.__module__) for kind in kinds)]


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    return generator.getstate()


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
