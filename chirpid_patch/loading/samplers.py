"""Functions that copy samplers, and that check whether indices may be requested before they are needed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def batches_to_request_early(loader: Any) -> int:
    """Return the number of batches whose indices can be requested early, with unchanged random numbers.

    *Early* means that the loader requests the indices from the sampler before the loop needs the batch. The result is 0
    for samplers that PyTorch does not define. The result is also 0 if a sampler draws random numbers during the epoch,
    from a generator that the program has passed.
    """
    if not uses_only_torch_generator(loader):
        return 0
    batches = loader.batch_sampler
    sampler: Any = loader.sampler if batches is None else batches.sampler
    count = len(sampler if batches is None else batches)
    if type(sampler) is RandomSampler and sampler.generator is not None:
        # The sampler uses the caller's generator at the start and at the end of an epoch, so the sampler must not end
        # early.
        draws_between = sampler.replacement or sampler.num_samples > len(sampler.data_source)
        return 0 if draws_between else max(count - 1, 0)
    return count


def uses_only_torch_generator(loader: Any) -> bool:
    """Return whether the samplers of ``loader`` provably use no random generators except PyTorch's generators."""
    batches = loader.batch_sampler
    if batches is None:
        return type(loader.sampler) in _DRAWING_AT_ONCE
    return type(batches) is BatchSampler and type(batches.sampler) in _DRAWING_AT_ONCE


#: Samplers that draw all random numbers before their first index, or that draw from their own generator.
_DRAWING_AT_ONCE = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def copy_sampler(sampler: Any) -> Any:
    """Return a copy of a sampler and its inner samplers.

    The copy shares the random generators of the original. Apart from these generators, using the copy does not affect
    the original.
    """
    duplicate = copy.copy(sampler)
    for name, part in getattr(duplicate, "__dict__", {}).items():
        if isinstance(part, Sampler):
            setattr(duplicate, name, copy_sampler(part))
        elif isinstance(part, list | np.ndarray | Tensor):  # a sampler may shuffle its indices in place
            setattr(duplicate, name, copy.deepcopy(part))
    return duplicate
