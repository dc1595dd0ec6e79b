"""The samples of a dataset that belong to one rank."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch.utils.data import DistributedSampler, IterableDataset

from chirpid_patch.machine.ranks import current_rank, current_world_size
from chirpid_patch.randomness.seeding import worker_init_fn

_ABOUT_RANKS = ("world_size", "rank", "seed")
_DEFAULT_SEED = 0  # as DistributedSampler has it


@dataclass(frozen=True)
class RankShare:
    """One rank's share of a dataset, and the seed that all ranks share."""

    rank: int
    world_size: int
    seed: int


def find_rank(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return rank and number of ranks: the arguments, or the values of ``torch.distributed`` or torchrun's environment.

    For one rank, or a ``world_size`` of 0 (``torch.cuda.device_count()`` without a device), the result is (0, 1). If
    only ``rank`` contradicts the launcher, the launcher's rank is returned, with a warning: with ``rank=0`` in every
    process, all processes would train on the same samples.

    Raises:
        TypeError: an argument is no whole number.
        ValueError: ``world_size`` is negative, or differs from the launcher's without a ``rank``; or the rank is out of
            range.
    """
    for name, given in (("rank", rank), ("world_size", world_size)):
        if given is not None and not isinstance(given, Integral):
            raise TypeError(f"{name} must be a whole number, not {given!r}")
    if world_size is not None and world_size < 0:
        raise ValueError(f"world_size must be 0 or more, not {world_size}")
    here, known = current_rank(), current_world_size()
    count = known if world_size is None else max(world_size, 1)
    if count == known:
        if rank is not None and rank != here:
            warnings.warn(
                f"rank={rank} was passed to rank {here} of {known}; it loads the samples of rank {here}: omit rank "
                "and world_size, which torch.distributed or torchrun defines.",
                UserWarning,
                stacklevel=5,
            )
        return here, known
    if count == 1:
        return 0, 1
    if rank is None:
        raise ValueError(f"world_size={count} was passed where {known} ranks run: pass rank as well, or omit both")
    if not 0 <= rank < count:
        raise ValueError(f"rank={rank} is none of {count} ranks: pass one from 0 to {count - 1}")
    if known == 1:
        warnings.warn(
            f"neither torch.distributed nor torchrun reports {count} ranks; this loader has the samples of rank "
            f"{rank} only: call torch.distributed.init_process_group before, or omit rank and world_size.",
            UserWarning,
            stacklevel=5,
        )
    return rank, count


def training_sampler(dataset: Any, share: RankShare, *, shuffle: bool, drop_last: bool) -> DistributedSampler[Any]:
    """Return PyTorch's sampler, which gives every rank as many samples, and each epoch a different order.

    If the ranks do not divide the dataset, up to ``world_size - 1`` samples are omitted with ``drop_last``, else
    repeated. With ``drop_last`` and fewer samples than ranks, samples are repeated, with a warning: an epoch without
    samples would train nothing.
    """
    if drop_last and len(dataset) < share.world_size:
        warnings.warn(
            f"drop_last=True would drop all {len(dataset)} samples ({share.world_size} ranks): they are repeated "
            "so that each rank has one; start fewer ranks to silence this.",
            UserWarning,
            stacklevel=5,
        )
        drop_last = False
    return DistributedSampler(
        dataset, share.world_size, share.rank, shuffle=shuffle, seed=share.seed, drop_last=drop_last
    )


def evaluation_sampler(dataset: Any, share: RankShare, *, shuffle: bool = False) -> DistributedSampler[Any]:
    """Return PyTorch's sampler without its padding: every sample on exactly one rank.

    Rank ``r`` of ``w`` has samples ``r, r + w, r + 2w, …``. The numbers of samples differ by at most one between ranks.
    Some ranks have none if there are fewer samples than ranks.
    """
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, share.world_size, share.rank, shuffle=shuffle, seed=share.seed
    )
    # The sampler pads to `total_size`. Its type stays PyTorch's own, which frameworks and prefetching know.
    sampler.total_size = len(dataset)
    sampler.num_samples = len(range(share.rank, len(dataset), share.world_size))
    return sampler


def take_share(dataset: Any, shuffle: bool | None, options: dict[str, Any], *, training: bool) -> RankShare | None:
    """Return this rank's share if ``options`` request one; None for an ordinary loader, also of a single rank.

    The function removes ``distributed``, ``world_size``, ``rank`` and ``seed`` from ``options`` and adds their effect:
    ``sampler`` and ``worker_init_fn``, or for a single rank a ``generator`` with that seed. It keeps an existing
    ``DistributedSampler``.

    Raises:
        TypeError: an argument about ranks without ``distributed=True``; an iterable dataset.
        ValueError: the caller sets the order (another sampler, a batch sampler, a generator).
    """
    distributed = bool(options.pop("distributed", False))
    given = {name: options.pop(name) for name in _ABOUT_RANKS if name in options}
    if not distributed:
        if given:
            raise TypeError(f"{' and '.join(given)} without distributed=True has no meaning: pass that, too")
        return None
    _check_order_is_ours(dataset, options)
    rank, world_size = find_rank(given.get("rank"), given.get("world_size"))
    seed = given.get("seed")
    if world_size == 1:
        if seed is not None:
            options["generator"] = torch.Generator().manual_seed(seed)
        return None
    share = RankShare(rank, world_size, _DEFAULT_SEED if seed is None else seed)
    if options.get("sampler") is None:
        if training:
            drop_last = bool(options.get("drop_last"))
            options["sampler"] = training_sampler(dataset, share, shuffle=bool(shuffle), drop_last=drop_last)
        else:
            options["sampler"] = evaluation_sampler(dataset, share, shuffle=bool(shuffle))
    if options.get("worker_init_fn") is None:
        options["worker_init_fn"] = worker_init_fn
    return share


def _check_order_is_ours(dataset: Any, options: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset):
        raise TypeError("an IterableDataset shares its samples among ranks itself: omit distributed")
    sampler = options.get("sampler")
    if options.get("batch_sampler") is not None or not (sampler is None or isinstance(sampler, DistributedSampler)):
        raise ValueError(
            "distributed=True gives each rank its samples by a DistributedSampler: omit sampler and batch_sampler, "
            "or pass a torch.utils.data.DistributedSampler"
        )
    if options.get("generator") is not None:
        raise ValueError("distributed=True seeds each rank and epoch itself: pass seed instead of generator")
