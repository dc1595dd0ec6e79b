"""Composed transforms, and a function that splits a composed transform into single transforms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from chirpid_patch.declaration import batched_object_for
from chirpid_patch.transforms.spectrograms import Transform

#: Position of a single transform in nested composed transforms, from the outermost to the innermost.
Position = tuple[int, ...]


class Compose:
    """Apply transforms one after the other, like ``torchvision.transforms.Compose``.

    Attributes:
        transforms: list of functions of one argument. Changes to the list take effect at the next call.
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Lambda:
    """Apply a function as a transform, like ``torchvision.transforms.Lambda``.

    Attributes:
        lambd: the function of one argument.
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, sample: Any) -> Any:
        return self.lambd(sample)


def split_transform(transform: Transform, position: Position) -> Iterator[tuple[Position, Transform]]:
    """Yield a pair (position, transform) for each single transform that ``transform`` applies, in order.

    The function splits ``Compose`` and ``Lambda`` of this module and of torchvision, and ``nn.Sequential``. The
    function also splits objects of subclasses of this module's ``Compose`` and ``Lambda``, unless the subclass
    overrides ``__call__``. For any other transform, the function yields one pair, with ``transform`` itself. If the
    class of a transform has a decorator of ``transforms.declared``, the function yields the matching transform of this
    package instead.

    Args:
        transform: any transform.
        position: position of ``transform`` in nested transforms, such as (2,) for the third transform of a ``Compose``.
    """
    transform = batched_object_for(transform)
    inner = _inner(transform)
    if inner is None:
        yield position, transform
        return
    for number, part in enumerate(inner):
        yield from split_transform(part, (*position, number))


def _inner(transform: Transform) -> Sequence[Transform] | None:
    kind = type(transform)
    if isinstance(transform, Compose) and kind.__call__ is Compose.__call__:
        return _as_list(transform.transforms)
    if isinstance(transform, Lambda) and kind.__call__ is Lambda.__call__:
        return (transform.lambd,)
    if kind is nn.Sequential and not (transform._forward_hooks or transform._forward_pre_hooks):  # type: ignore[attr-defined]
        return list(transform)  # type: ignore[call-overload, no-any-return]
    torchvision = sys.modules.get("torchvision.transforms.transforms")
    if torchvision is not None and kind is torchvision.Compose:
        return _as_list(transform.transforms)  # type: ignore[attr-defined]
    if torchvision is not None and kind is torchvision.Lambda:
        return (transform.lambd,)  # type: ignore[attr-defined]
    return None


def _as_list(transforms: Any) -> Sequence[Transform] | None:
    """Return ``transforms`` if its type is list or tuple; else None, because reading an iterator would exhaust it."""
    return transforms if type(transforms) in (list, tuple) else None
