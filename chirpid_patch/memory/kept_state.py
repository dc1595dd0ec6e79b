"""A training's state put back as it was after something was tried with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@contextmanager
def kept_state(*owners: Any) -> Iterator[None]:
    """Within the context anything may be trained; afterwards ``owners`` are to the last bit as before.

    Of modules: parameters, buffers, gradients, training or evaluation mode, and attributes that are numbers or text.
    Gradients are None to begin with. Of optimisers: their state and parameter groups. Of anything else: what its
    ``state_dict`` holds. Tensors stay the same objects; their values are kept in main memory meanwhile.

    Raises:
        TypeError: an owner is no module, no optimiser, and has no ``state_dict`` and ``load_state_dict``.
        ValueError: a module has parameters without a shape yet (lazy modules).
    """
    with ExitStack() as stack:
        for owner in owners:
            stack.callback(_keep(owner))
        yield


def _keep(owner: Any) -> Callable[[], None]:
    """What puts ``owner`` back as it is now."""
    if isinstance(owner, nn.Module):
        return _keep_module(owner)
    if isinstance(owner, Optimizer):
        return _keep_optimizer(owner)
    if not (hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")):
        raise TypeError(
            f"the state of a {type(owner).__name__} cannot be kept: it has no state_dict and load_state_dict"
        )
    saved = copy.deepcopy(owner.state_dict())

    def restore() -> None:
        owner.load_state_dict(saved)

    return restore


def _keep_tensors(tensors: Iterable[Tensor]) -> Callable[[], None]:
    saved = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors]

    def restore() -> None:
        with torch.no_grad():
            for tensor, values in saved:
                tensor.copy_(values)

    return restore


def _keep_module(module: nn.Module) -> Callable[[], None]:
    parameters = list(module.parameters())
    if any(map(is_lazy, (*parameters, *module.buffers()))):
        raise ValueError("the model has lazy parameters without a shape: run one batch through it first")
    restore_tensors = _keep_tensors([*parameters, *module.buffers()])
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    named: list[Any] = [names for part in module.modules() for names in (part._parameters, part._buffers)]
    objects = [(names, dict(names)) for names in named if isinstance(names, dict)]  # scripted modules have none
    plain = [
        (part, {name: value for name, value in vars(part).items() if isinstance(value, _PLAIN)})
        for part in module.modules()
    ]
    for parameter in parameters:
        parameter.grad = None

    def restore() -> None:
        for names, before in objects:  # a buffer may have been replaced instead of changed
            names.clear()
            names.update(before)
        for part, values in plain:
            vars(part).update(values)
        restore_tensors()
        for parameter, gradient in gradients:
            parameter.grad = gradient

    return restore


def _keep_mapping(values: MutableMapping[Any, Any], *, apart: str | None = None) -> Callable[[], None]:
    """Keep the values of a mapping; the one called ``apart`` stays as it is."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in values.items() if name not in tensors and name != apart}
    restore_tensors, others = _keep_tensors(tensors.values()), copy.deepcopy(others)

    def restore() -> None:
        for name in [name for name in values if name not in tensors and name not in others and name != apart]:
            del values[name]
        values.update(tensors)
        values.update(others)
        restore_tensors()

    return restore


def _keep_optimizer(optimizer: Optimizer) -> Callable[[], None]:
    of_parameters = dict(optimizer.state)
    restores = [_keep_mapping(state) for state in of_parameters.values() if isinstance(state, MutableMapping)]
    groups = list(optimizer.param_groups)
    restores += [_keep_mapping(group, apart="params") for group in groups]

    def restore() -> None:
        optimizer.state.clear()
        optimizer.state.update(of_parameters)
        optimizer.param_groups[:] = groups
        for put_back in restores:
            put_back()

    return restore
