"""Going on in the middle of a loader's epoch: what the epoch began from, and the batches read since (R-001).

An iterator of a loader cannot be saved. It is made again: from the state the random generators had when it was made,
and with the batches that were read since read once more and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.randomness.random_states import GlobalStates

#: Plain values and tensors, so that ``torch.load(..., weights_only=True)`` reads them back.
State = dict[str, Any]


def own_state(loader: Any) -> State:
    """What ``loader`` keeps from epoch to epoch: the state of one of ours, its generators', its samplers' epochs."""
    kept = loader._counters() if isinstance(loader, BatchedDataLoader) else None
    return {
        "kept": kept,
        "generators": [generator.get_state() for generator in _generators(loader)],
        "epochs": [getattr(sampler, "epoch", None) for sampler in _counting_samplers(loader)],
    }


def restore_own_state(loader: Any, state: State) -> None:
    """Put back what ``own_state`` gave. Raises ValueError where it is that of a loader of another kind."""
    generators, samplers = _generators(loader), _counting_samplers(loader)
    alike = len(generators) == len(state["generators"]) and len(samplers) == len(state["epochs"])
    if not alike or isinstance(loader, BatchedDataLoader) != (state["kept"] is not None):
        raise ValueError("the state is that of a loader made in another way: make it as it was made then")
    if state["kept"] is not None:
        loader.load_state_dict(state["kept"])
    for generator, one in zip(generators, state["generators"], strict=True):
        generator.set_state(one)
    set_epochs(loader, state["epochs"])


def next_epochs(loader: Any, last: Sequence[int]) -> list[int]:
    """Move samplers with ``set_epoch`` on from the epochs that were read ``last``, where nobody else has by now.

    Gives the epochs that are read next.
    """
    numbers = []
    for place, sampler in enumerate(_counting_samplers(loader)):
        now = getattr(sampler, "epoch", None)
        if last and (now is None or now == last[place]):
            now = last[place] + 1
        numbers.append(now or 0)
    set_epochs(loader, numbers)
    return numbers


def set_epochs(loader: Any, numbers: Sequence[int | None]) -> None:
    """Tell samplers the epochs that are read next; None tells nothing."""
    for sampler, number in zip(_counting_samplers(loader), numbers, strict=True):
        if number is not None:
            sampler.set_epoch(number)


def beginning(loader: Any) -> State:
    """All that the iterator which is about to be made begins from."""
    return {"own": own_state(loader), "global": GlobalStates.now().as_plain()}


def begin_again(loader: Any, begun_from: State, epochs: Sequence[int], taken: int) -> Iterator[Any]:
    """The iterator that began from there, in these epochs, and gave ``taken`` batches. Generators end as they are now.

    Its further batches are those it would have given, unless a sampler draws from a global generator as it goes.
    """
    own, outside = own_state(loader), GlobalStates.now()
    restore_own_state(loader, begun_from["own"])
    set_epochs(loader, epochs)
    GlobalStates.of_plain(begun_from["global"]).restore()
    try:
        batches: Iterator[Any] = iter(loader)
        for _ in range(taken):
            next(batches)
    finally:
        outside.restore()
        for generator, state in zip(_generators(loader), own["generators"], strict=True):
            generator.set_state(state)
        set_epochs(loader, own["epochs"])
    return batches


def _counting_samplers(loader: Any) -> list[Any]:
    return [sampler for sampler in _samplers(loader) if callable(getattr(sampler, "set_epoch", None))]


def _samplers(loader: Any) -> list[Any]:
    """The samplers of a loader and those they hold, each once."""
    found: list[Any] = []
    waiting = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    while waiting:
        sampler = waiting.pop(0)
        if sampler is not None and not any(sampler is one for one in found):
            found.append(sampler)
            waiting += [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    return found


def _generators(loader: Any) -> list[torch.Generator]:
    """PyTorch generators of a loader and its samplers, each once."""
    owners = [loader, *_samplers(loader)]
    values = [value for owner in owners for value in getattr(owner, "__dict__", {}).values()]
    held = [value for value in values if isinstance(value, torch.Generator)]
    return list({id(generator): generator for generator in held}.values())
