"""Functions that copy the attributes of a loader for PyTorch's iterators, and change some of the attributes."""

from __future__ import annotations

from typing import Any

import torch

from chirpid_patch.torch_private import DataLoader

#: A ``DataLoader`` with the attributes of the user's loader, but without a reference to the user's loader. So the
#: workers end when the program deletes its last reference to the user's loader.
LoaderParts = Any


def copy_loader_attributes(loader: DataLoader[Any], **changed: Any) -> LoaderParts:
    """Return a ``DataLoader`` with the attributes of ``loader``, except for the attributes in ``changed``."""
    parts: DataLoader[Any] = DataLoader.__new__(DataLoader)
    vars(parts).update({**vars(loader), "_iterator": None, **changed})
    return parts


def replace_sampler_and_generator(parts: LoaderParts, seed: int) -> LoaderParts:
    """Return a copy of ``parts`` with an empty sampler and a new generator that is seeded with ``seed``.

    So an iterator over this copy changes neither the sampler nor the generator of the user's loader.
    """
    generator = torch.Generator()
    generator.manual_seed(seed)
    batches = None if parts.batch_sampler is None else ()
    return copy_loader_attributes(parts, batch_sampler=batches, sampler=(), generator=generator)
