"""Functions that return the rank of this process, and samplers that divide a dataset among the ranks."""

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
_DEFAULT_SEED = 0  # the default of DistributedSampler


@dataclass(frozen=True)
class RankShare:
    """The rank of the process that uses a loader, the number of ranks, and the seed that all ranks share."""

    rank: int
    world_size: int
    seed: int


def find_rank(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks.

    The *reported* values are those of ``torch.distributed`` or of the environment variables that torchrun sets. An
    argument that is None stands for the reported value. If ``world_size`` is equal to the reported number of ranks, but
    ``rank`` is not the reported rank, the function warns and returns the reported rank. So if every process passes
    ``rank=0`` by mistake, the processes still train on different samples.

    Args:
        rank: rank of this process, counted from 0; None: the reported rank.
        world_size: number of ranks; None: the reported number. 0 has the same meaning as 1, because programs pass
            ``torch.cuda.device_count()``, which is 0 without a device.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: ``world_size`` is negative. If ``world_size`` is above 1 and not the reported number, ``rank`` must
            be a number from 0 to ``world_size - 1``.
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
                f"rank={rank} was passed, but this process is rank {here} of {known}. The loader reads the samples of "
                f"rank {here}. Omit rank and world_size, because torch.distributed or torchrun defines them.",
                UserWarning,
                stacklevel=6,
            )
        return here, known
    if count == 1:
        return 0, 1
    if rank is None:
        raise ValueError(f"world_size={count} was passed, but {known} ranks run: also pass rank, or omit both")
    if not 0 <= rank < count:
        raise ValueError(f"rank={rank} is out of range for {count} ranks: pass a rank from 0 to {count - 1}")
    if known == 1:
        warnings.warn(
            f"neither torch.distributed nor torchrun reports {count} ranks. The loader reads only the samples of rank "
            f"{rank}. Call torch.distributed.init_process_group first, or omit rank and world_size.",
            UserWarning,
            stacklevel=6,
        )
    return rank, count


def training_sampler(dataset: Any, share: RankShare, *, shuffle: bool, drop_last: bool) -> DistributedSampler[Any]:
    """Return a ``DistributedSampler`` for training. Every rank reads the same number of samples.

    If the number of samples is not a multiple of the number of ranks, the sampler repeats up to ``world_size - 1``
    samples. With ``drop_last``, the sampler omits up to ``world_size - 1`` samples instead. If there are fewer samples
    than ranks, the sampler repeats samples even with ``drop_last``, and the function warns.

    Args:
        dataset: the dataset of the loader.
        share: the rank, the number of ranks, and the seed.
        shuffle: whether each epoch has a new random order.
        drop_last: whether to omit samples instead of repeating samples.
    """
    if drop_last and len(dataset) < share.world_size:
        warnings.warn(
            f"drop_last=True would drop all {len(dataset)} samples, because there are {share.world_size} ranks. "
            "Samples are repeated so that each rank has a sample. Start fewer ranks to avoid this warning.",
            UserWarning,
            stacklevel=6,
        )
        drop_last = False
    return DistributedSampler(
        dataset, share.world_size, share.rank, shuffle=shuffle, seed=share.seed, drop_last=drop_last
    )


def evaluation_sampler(dataset: Any, share: RankShare, *, shuffle: bool = False) -> DistributedSampler[Any]:
    """Return a ``DistributedSampler`` for evaluation. Exactly one rank reads each sample.

    Without shuffling, rank ``r`` of ``w`` ranks reads the samples ``r, r + w, r + 2w, …``. Some ranks may read one
    sample less than other ranks. If there are fewer samples than ranks, some ranks read no sample.
    """
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, share.world_size, share.rank, shuffle=shuffle, seed=share.seed
    )
    # With this `total_size`, the sampler repeats no samples. A subclass could also avoid repeated samples, but
    # frameworks would not recognise a subclass.
    sampler.total_size = len(dataset)
    sampler.num_samples = len(range(share.rank, len(dataset), share.world_size))
    return sampler


def replace_rank_arguments(
    dataset: Any, shuffle: bool | None, options: dict[str, Any], *, training: bool
) -> RankShare | None:
    """Replace the arguments about ranks in ``options`` by a sampler, and return the ``RankShare`` of this rank.

    Without ``distributed=True``, or with a single rank, the result is None. The function removes ``distributed``,
    ``world_size``, ``rank`` and ``seed`` from ``options``. For several ranks, the function adds the options ``sampler``
    and ``worker_init_fn`` if these options are missing. For a single rank with a ``seed``, the function adds a
    ``generator`` with this seed.

    Args:
        dataset: the dataset of the loader.
        shuffle: whether each epoch has a new random order.
        options: the arguments of the loader, which the function changes.
        training: whether the loader is for training. True selects ``training_sampler``, and False selects
            ``evaluation_sampler``.

    Raises:
        TypeError: with ``distributed=True``, the dataset is an ``IterableDataset``. Without ``distributed=True``,
            ``options`` contains ``world_size``, ``rank`` or ``seed``.
        ValueError: with ``distributed=True``, ``options`` contains a batch sampler, a generator, or a sampler that is
            not a ``DistributedSampler``.
    """
    distributed = bool(options.pop("distributed", False))
    given = {name: options.pop(name) for name in _ABOUT_RANKS if name in options}
    if not distributed:
        if given:
            raise TypeError(f"{' and '.join(given)} without distributed=True has no effect: also pass distributed=True")
        return None
    _check_no_other_order(dataset, options)
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


def _check_no_other_order(dataset: Any, options: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset):
        raise TypeError("an IterableDataset must divide its samples among the ranks itself: omit distributed")
    sampler = options.get("sampler")
    if options.get("batch_sampler") is not None or not (sampler is None or isinstance(sampler, DistributedSampler)):
        raise ValueError(
            "distributed=True divides the samples with a DistributedSampler: omit sampler and batch_sampler, or pass a "
            "torch.utils.data.DistributedSampler"
        )
    if options.get("generator") is not None:
        raise ValueError("distributed=True seeds each rank and epoch itself: pass seed instead of generator")
