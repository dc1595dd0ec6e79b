"""Collation that may be done by reading a whole batch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from chirpid_patch.torch_private import collates_as_published

__all__ = ["collate_pairs", "stacks_samples"]


def collate_pairs(samples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Stack what samples have first, tensors of equal shape, and what they have second: a tuple (X, Y).

    Under this package's loader a batch is read at once instead, where the dataset allows it.
    """
    return torch.stack([sample[0] for sample in samples]), torch.stack([sample[1] for sample in samples])


def stacks_samples(collate: Callable[[Any], Any] | None) -> bool:
    """Whether ``collate`` (None: PyTorch's own) puts samples together as reading a batch at once would."""
    return collate is collate_pairs or ((collate is None or collate is default_collate) and collates_as_published())
