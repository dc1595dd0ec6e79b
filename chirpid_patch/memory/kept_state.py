"""A context that restores the state of modules and optimisers after trial steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer


@contextmanager
def restore_state_after(*owners: Any) -> Iterator[None]:
    """Restore the state of ``owners`` to the last bit at the end of the ``with`` block.

    The block may run training steps. For modules, the context restores parameters, buffers, gradients and training
    modes, and undoes assignments to other attributes. For optimisers, the context restores the state and the parameter
    groups. For other objects, the context restores ``state_dict()``. After the block, the restored tensors are the same
    objects as before. During the block, the CPU's memory contains copies of the tensors' values. At the start of the
    block, the context sets all gradients to None, so that the block cannot change the saved gradients.

    Args:
        *owners: modules, optimisers, or objects with ``state_dict`` and ``load_state_dict``.

    Raises:
        TypeError: an owner is neither a module nor an optimiser, and has no ``state_dict`` and ``load_state_dict``.
        ValueError: a module is lazy, and its parameters have no shape yet.
    """
    with ExitStack() as stack:
        for owner in owners:
            stack.callback(_restore_function(owner))
        yield


def _restore_function(owner: Any) -> Callable[[], None]:
    """Return a function that restores the current state of ``owner``."""
    if isinstance(owner, nn.Module):
        return _keep_module(owner)
    if isinstance(owner, Optimizer):
        return _keep_optimizer(owner)
    if not (hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")):
        raise TypeError(
            f"the state of a {type(owner).__name__} cannot be saved, because it has no state_dict and load_state_dict"
        )
    saved = copy.deepcopy(owner.state_dict())
    return lambda: owner.load_state_dict(saved)


def _keep_tensors(tensors: Iterable[Any]) -> Callable[[], None]:
    saved = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors if isinstance(tensor, Tensor)]

    def restore() -> None:
        with torch.no_grad():
            for tensor, values in saved:
                tensor.copy_(values)

    return restore


def _keep_module(module: nn.Module) -> Callable[[], None]:
    parameters = list(module.parameters())
    if any(map(is_lazy, (*parameters, *module.buffers()))):
        raise ValueError("the model has lazy parameters without a shape: call the model with a batch first")
    restore_tensors = _keep_tensors([*parameters, *module.buffers()])
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    # A step may replace a buffer, so the dictionaries of parameters and buffers are also copied.
    attributes = [
        (part, {name: dict(value) if isinstance(value, dict) else value for name, value in vars(part).items()})
        for part in module.modules()
    ]
    for parameter in parameters:
        parameter.grad = None

    def restore() -> None:
        for part, values in attributes:
            vars(part).clear()
            vars(part).update(values)
        restore_tensors()
        for parameter, gradient in gradients:
            parameter.grad = gradient

    return restore


def _keep_optimizer(optimizer: Optimizer) -> Callable[[], None]:
    states = {parameter: dict(state) for parameter, state in optimizer.state.items()}
    groups = [dict(group) for group in optimizer.param_groups]
    kept = (*states.values(), *groups)
    restore_tensors = _keep_tensors(value for values in kept for value in values.values())

    def restore() -> None:
        optimizer.state.clear()
        optimizer.state.update(states)
        optimizer.param_groups[:] = groups
        restore_tensors()

    return restore
