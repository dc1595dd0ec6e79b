"""Masks that leave short axes alone: batches are masked as the class of the backend masks one sample at a time.

All draws are seeded. Each comparison is of all cells (width, start) of both axes, by a chi-square whose bound is five
standard deviations above its mean; `test_what_the_comparison_tells_apart` shows what it finds at this size.
"""

from __future__ import annotations

import math
import pickle
import random
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from test_augmentation_distribution import keys, mask_positions

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project
from chirpid_patch import SpecAugment
from chirpid_patch.declaration import batched_object_for

PAIR = Path(__file__).parents[3] / "fixtures" / "rules" / "CHP003"
N = 4000
F, T = 5, 8


@cache
def module(name: str) -> Any:
    made = ModuleType(f"chp003_{name}")
    exec(compile((PAIR / f"{name}.py").read_text(encoding="utf-8"), name, "exec"), vars(made))
    for one in vars(made).values():
        if isinstance(one, type) and one.__module__ == "builtins":
            one.__module__ = made.__name__
    sys.modules[made.__name__] = made  # where pickle looks for its classes
    return made


def masked_singly(transform: Any, shape: tuple[int, ...]) -> torch.Tensor:
    random.seed(1)
    return torch.stack([transform(torch.ones(shape)) for _ in range(N)])


def masked_at_once(transform: Any, shape: tuple[int, ...]) -> torch.Tensor:
    ones = torch.ones(N, *shape)
    transform.transform_batch_(ones, keys(N))
    return ones


def differs(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two sets of samples with at most one mask are of different distributions."""
    left, right = (one.reshape(N, -1, *one.shape[-2:])[:, 0] for one in (left, right))
    size = max(F, T) + 2
    cells = [
        np.bincount(one[:, 0] * size + one[:, 1] + 1, minlength=size**2) for one in map(mask_positions, (left, right))
    ]
    used = (cells[0] + cells[1]) > 0
    chi_square = float((((cells[0] - cells[1]) ** 2)[used] / (cells[0] + cells[1])[used]).sum())
    freedom = max(1, int(used.sum()) - 1)
    return chi_square >= freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", ["GuardedMasks", "MasksBehindSizes"])
@pytest.mark.parametrize(
    "shape", [(1, F, T), *(pytest.param(one, marks=pytest.mark.slow) for one in ((F, T), (3, F, T)))], ids=str
)
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("over", [-3, -1, 0, 4], ids=lambda over: f"parameter {over:+d}")
def test_batches_are_masked_as_single_samples_are(name: str, shape: tuple[int, ...], axis: int, over: int) -> None:
    size = shape[axis]
    time, freq = (size + over, 0) if axis == -1 else (0, size + over)
    declared = getattr(module("after"), name)(time, freq, p=0.7)
    assert type(batched_object_for(declared)) is SpecAugment
    old = masked_singly(getattr(module("before"), name)(time, freq, p=0.7), shape)
    new = masked_at_once(batched_object_for(declared), shape)
    for one in (old, new):
        assert bool((one == 0).any()) == (over < 0)
        by_channel = one.reshape(N, -1, *shape[-2:])
        assert bool((by_channel == by_channel[:, :1]).all())
    if axis == -2:
        old, new = (one.transpose(-1, -2) for one in (old, new))
    assert not differs(old, new)


def test_what_the_comparison_tells_apart() -> None:
    old = masked_singly(module("before").GuardedMasks(5, 0, p=0.7), (F, T))
    for other in (SpecAugment(5, 0, p=0.55), SpecAugment(4, 0, p=0.7), SpecAugment(6, 0, p=0.7)):
        assert differs(old, masked_at_once(other, (F, T)))
    whole = masked_singly(module("before").GuardedMasks(T, 0, p=0.7), (F, T))
    assert differs(whole, masked_at_once(SpecAugment(T, 0, p=0.7), (F, T)))


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        ("self.{0} > 0", "@masks_spectrograms()"),
        ("{1} > self.{0}", "@masks_spectrograms(mask_short_axes=False)"),
        ("self.{0} < {1} and self.{0} > 0", "@masks_spectrograms(mask_short_axes=False)"),
    ],
)
def test_what_a_guard_says(guard: str, said: str) -> None:
    text = (PAIR / "before.py").read_text(encoding="utf-8").partition("class MasksBehindSizes")[0]
    for param, size in (("time_mask_param", "frames"), ("freq_mask_param", "bins")):
        old = f"self.{param} > 0 and {size} > self.{param}"
        assert old in text
        text = text.replace(old, guard.format(param, size))
    rule = next(one for one in all_rules() if one.code == "CHP003")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}), rules=[rule])
    assert f"{said}\nclass GuardedMasks(" in after


def test_parameters_below_zero_are_left_to_its_own_code() -> None:
    declared = module("after").GuardedMasks(-1, -2, p=1.0)
    assert batched_object_for(declared) is declared
    assert torch.equal(declared(torch.ones(1, F, T)), torch.ones(1, F, T))
    with pytest.raises(ValueError, match="time_mask_param >= 0"):
        SpecAugment(-1, 2, p=1.0, mask_short_axes=False)(torch.ones(1, F, T))


def test_it_is_picklable() -> None:
    for one in (module("after").GuardedMasks(3, 2), batched_object_for(module("after").GuardedMasks(3, 2))):
        assert batched_object_for(pickle.loads(pickle.dumps(one))).mask_short_axes is False
