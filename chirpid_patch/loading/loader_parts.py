"""The attributes of a loader that PyTorch's iterators read, some of them changed."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

#: A ``DataLoader`` made of another one's attributes. It holds no reference to that one, whose workers therefore end
#: when nobody refers to it any more.
LoaderParts = Any


def loader_attributes(loader: DataLoader[Any], **changed: Any) -> LoaderParts:
    """Return the attributes of ``loader``, with the values in ``changed`` instead of its own."""
    parts: DataLoader[Any] = DataLoader.__new__(DataLoader)
    vars(parts).update({**vars(loader), "_iterator": None, **changed})
    return parts


def without_random_calls(parts: LoaderParts, seed: int) -> LoaderParts:
    """Return ``parts`` for an iterator whose construction uses neither the sampler nor the loader's generator."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    batches = None if parts.batch_sampler is None else ()
    return loader_attributes(parts, batch_sampler=batches, sampler=(), generator=generator)
