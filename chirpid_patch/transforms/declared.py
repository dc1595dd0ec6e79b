"""Decorators for user classes that work like ``SpecAugment``, ``GaussianNoise``, ``Compose`` or ``Lambda``.

A decorator does not change the class: a call of an object still runs the class's own code. Loaders, however, augment
whole batches with a transform of this package that has the same parameters. The results have the same distribution as
with the class's own code. The random numbers come from a key of each sample (see ``randomness.keyed_random``), so the
results do not depend on the number of workers. If the object does not fit its declaration, loaders run the class's own
code for each sample, for example if a parameter is not a finite number, the object has hooks, or a subclass overrides
``forward``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from chirpid_patch.declaration import Class, declare_method
from chirpid_patch.torch_private import has_global_hooks
from chirpid_patch.transforms.composition import Compose, Lambda
from chirpid_patch.transforms.spectrograms import GaussianNoise, SpecAugment

_WIDTHS = ("time_mask_param", "freq_mask_param")
_COUNTS = ("num_time_masks", "num_freq_masks")
_MASKS = (*_WIDTHS, *_COUNTS, "mask_value", "p")
_CALL: Any = nn.Module.__call__
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def masks_spectrograms(*, mask_short_axes: bool = True, calls: tuple[str, ...] = ()) -> Callable[[Class], Class]:
    """Declare that ``forward(x)`` masks x in the same way as ``SpecAugment``.

    The object must have an attribute for each parameter of ``SpecAugment``, with the same name.

    Args:
        mask_short_axes: as for ``SpecAugment``.
        calls: names of the methods that ``forward`` calls. If a subclass or other code replaces one of these methods,
            loaders ignore the declaration.
    """
    return _decorator(_MASKS, calls, lambda state: _masks_with(state, mask_short_axes))


def masks_images(*, mask_short_axes: bool = True, calls: tuple[str, ...] = ()) -> Callable[[Class], Class]:
    """Declare that a call with an 8-bit grey image masks the image as ``SpecAugment`` masks a tensor (F, T).

    The object must have an attribute for each parameter of ``SpecAugment``, with the same name. ``mask_value`` must be
    from 0 to 255. The declaration has an effect only in a dataset whose class has the decorator ``augments_images``
    (``datasets.declared``).

    Args:
        mask_short_axes: as for ``SpecAugment``.
        calls: names of the methods that ``__call__`` calls. If a subclass or other code replaces one of these methods,
            loaders ignore the declaration.
    """

    def build(state: Mapping[str, Any]) -> SpecAugment | None:
        masks = _masks_with(state, mask_short_axes)
        return masks if masks is not None and 0 <= masks.mask_value <= 255 else None

    return declare_method(_MASKS, calls, build, method="__call__", of_images=True)


def _masks_with(state: Mapping[str, Any], mask_short_axes: bool) -> SpecAugment | None:
    parameters = {name: state[name] for name in _MASKS}
    whole = all(type(parameters[name]) is int for name in (*_WIDTHS, *_COUNTS))
    if not whole or min(parameters[name] for name in _WIDTHS) < 0 or not _are_numbers(state, "mask_value", "p"):
        return None
    return SpecAugment(**parameters, mask_short_axes=mask_short_axes)


def adds_noise(*, calls: tuple[str, ...] = ()) -> Callable[[Class], Class]:
    """Declare that ``forward(x)`` adds noise to x in the same way as ``GaussianNoise``.

    The attributes ``std`` and ``p`` of the object are the parameters of ``GaussianNoise``.

    Args:
        calls: names of the methods that ``forward`` calls. If a subclass or other code replaces one of these methods,
            loaders ignore the declaration.
    """

    def build(state: Mapping[str, Any]) -> GaussianNoise | None:
        return GaussianNoise(state["std"], state["p"]) if _are_numbers(state, "std", "p") else None

    return _decorator(("std", "p"), calls, build)


def composes_transforms(transforms: str) -> Callable[[Class], Class]:
    """Declare that a call of the object applies several transforms one after the other, as ``Compose`` does.

    Args:
        transforms: name of the attribute with the list of transforms.
    """
    return declare_method((transforms,), (), lambda state: Compose(state[transforms]), method="__call__")


def applies_transform(function: str) -> Callable[[Class], Class]:
    """Declare that a call ``object(x)`` only returns ``f(x)`` for a function f, as ``Lambda`` does.

    Args:
        function: name of the attribute with the function f.
    """
    return declare_method((function,), (), lambda state: Lambda(state[function]), method="__call__")


def _are_numbers(state: Mapping[str, Any], *names: str) -> bool:
    return all(type(state[name]) in (int, float) and math.isfinite(state[name]) for name in names)


def _decorator(
    attributes: tuple[str, ...], calls: tuple[str, ...], build: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Class], Class]:
    def unless_hooked(state: Mapping[str, Any]) -> Any:
        hooked = has_global_hooks() or any(state[name] for name in _HOOKS)
        return None if hooked or state.get("_compiled_call_impl") else build(state)

    return declare_method((*attributes, *_HOOKS), calls, unless_hooked, method="forward", inherited={"__call__": _CALL})
