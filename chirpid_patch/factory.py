"""Loaders made for the dataset, the CPUs and the device at hand (R-000-2.1)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from chirpid_patch.accelerator import pinning_device
from chirpid_patch.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.cpus import usable_cpus
from chirpid_patch.datasets import WorkerSafeStandardizedDataset
from chirpid_patch.fetch import is_in_memory
from chirpid_patch.loader import BatchedDataLoader
from chirpid_patch.waits import EpochWaits, make_audible

logger = logging.getLogger("chirpid_patch")

_TORCH_PREFETCH = 2  # what DataLoader uses with workers when nothing is given


class OptimalDataLoaderFactory:
    """Makes training, validation and test loaders.

    Every ``DataLoader`` argument can be given and is honoured. What is not given is chosen, and the choice
    with its reason is logged (logger ``chirpid_patch``, INFO) and kept as ``loader.decision``. Further
    arguments:

    has_augmentation, has_standardization: what the samples go through; bounds the number of workers.
    max_workers: the call this one replaces had up to so many workers; the factory may use fewer, or none.
        Without it and ``num_workers``, no process is started.
    optimize: False gives PyTorch's own loader as the replaced call would have built it.
    benchmark: log the data wait of each epoch (on standard error, where the program has set up no logging).
    """

    @staticmethod
    def get_optimal_config(
        dataset_size: int, has_augmentation: bool = False, has_standardization: bool = False
    ) -> dict[str, Any]:
        """DataLoader arguments for ``dataset_size`` samples that cost real work to load.

        8 workers with augmentation or standardisation (4 batches ahead each), else 12 (6 ahead); at most 4
        below 1,000 samples, 2 more (at most 16) above 10,000; never more than the CPUs this process may
        use, less one for the training itself. ``DataLoader(dataset, **config)`` is legal whatever comes out.
        """
        workers, prefetch = (8, 4) if has_augmentation or has_standardization else (12, 6)
        if dataset_size < 1000:
            workers = min(workers, 4)
        elif dataset_size > 10000:
            workers = min(workers + 2, 16)
        workers = min(workers, usable_cpus() - 1)
        return {
            "num_workers": workers,
            "prefetch_factor": prefetch if workers else None,
            "pin_memory": pinning_device() is not None,
            "persistent_workers": workers > 0,
            "drop_last": False,
        }

    @classmethod
    def create_training_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = True, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for training; shuffles unless told otherwise or given a sampler.

        With ``drop_last=True`` and fewer samples than one batch, the short batch is kept, with a warning: an
        epoch of no batches trains nothing.
        """
        if kwargs.get("drop_last") and kwargs.get("batch_sampler") is None:
            count = _sample_count(dataset, kwargs.get("sampler"))
            if batch_size is not None and count is not None and count < batch_size:
                warnings.warn(
                    f"drop_last=True would drop all {count} samples (batch_size={batch_size}): the short "
                    "batch is kept; choose a smaller batch_size to silence this.",
                    UserWarning,
                    stacklevel=2,
                )
                kwargs["drop_last"] = False
        return _create(dataset, batch_size, shuffle, kwargs)

    @classmethod
    def create_loader(
        cls,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        **kwargs: Any,
    ) -> DataLoader[Any]:
        """A loader for the arguments of ``torch.utils.data.DataLoader``, known only when the call runs.

        ``num_workers`` is what the caller would have had at most, as ``max_workers`` elsewhere.
        """
        return cls.create_training_loader(
            dataset,
            batch_size,
            shuffle=bool(shuffle),
            sampler=sampler,
            batch_sampler=batch_sampler,
            max_workers=num_workers,
            **kwargs,
        )

    @classmethod
    def create_validation_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for validation: every sample, in order unless told otherwise; ``drop_last`` is refused."""
        return _create(dataset, batch_size, shuffle, _keep_all(kwargs))

    @classmethod
    def create_test_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for testing: every sample, in order unless told otherwise; ``drop_last`` is refused."""
        return _create(dataset, batch_size, shuffle, _keep_all(kwargs))


def _keep_all(kwargs: dict[str, Any]) -> dict[str, Any]:
    if kwargs.get("drop_last"):
        warnings.warn(
            "drop_last=True is ignored for validation and test: they see every sample; leave it out.",
            UserWarning,
            stacklevel=3,
        )
        kwargs["drop_last"] = False
    return kwargs


def _sample_count(dataset: Any, sampler: Any) -> int | None:
    """Samples in an epoch; None where neither sampler nor dataset knows."""
    try:
        return len(dataset if sampler is None else sampler)
    except TypeError:
        return None


class _MeasuredDataLoader(DataLoader[Any]):
    """PyTorch's loader with its waits logged."""

    def __iter__(self) -> Any:
        return EpochWaits(super().__iter__(), logger)


def _create(dataset: Any, batch_size: int | None, shuffle: bool | None, given: dict[str, Any]) -> DataLoader[Any]:
    """The loader for arguments as the caller gave them."""
    options = dict(given)
    work = {name: bool(options.pop(name, False)) for name in ("has_augmentation", "has_standardization")}
    work["has_augmentation"] |= isinstance(dataset, WorkerSafeAugmentedDataset)
    work["has_standardization"] |= isinstance(dataset, WorkerSafeStandardizedDataset)
    max_workers = options.pop("max_workers", None)
    optimize, benchmark = bool(options.pop("optimize", True)), bool(options.pop("benchmark", False))
    if benchmark:
        make_audible(logger)
    explicit, persistent = options.pop("num_workers", None), bool(options.pop("persistent_workers", False))
    prefetch = options.pop("prefetch_factor", None)
    asked = explicit if explicit is not None else max_workers or 0  # what the replaced call would have had

    options["pin_memory"] = bool(options.get("pin_memory", True)) and pinning_device() is not None
    if options.get("batch_sampler") is None:
        options.update(_batching(dataset, batch_size, shuffle, options))
    else:
        options.pop("drop_last", None)  # the batch sampler decides
    if not optimize:
        kind = _MeasuredDataLoader if benchmark else DataLoader
        plain: Any = kind(dataset, **_with_workers(options, asked, prefetch, persistent))
        return _decided(plain, f"original loading (optimize=False): {_processes(asked)}")

    workers, why = _choose_workers(dataset, explicit, max_workers, options, work)
    ahead = (prefetch or _TORCH_PREFETCH) * asked
    if not workers:
        why += "" if prefetch is None else "; prefetch_factor has no meaning there"
    loader = BatchedDataLoader(
        dataset,
        draws_ahead=0 if workers else ahead,
        draws_like_persistent_workers=persistent and not workers,
        benchmark=benchmark,
        **_with_workers(options, workers, prefetch, persistent),
    )
    return _decided(loader, f"{_processes(workers)}: {why}")


def _batching(dataset: Any, batch_size: int | None, shuffle: bool | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Batch size, and shuffling unless a sampler or the dataset decides the order."""
    chosen: dict[str, Any] = {"batch_size": batch_size}
    if options.get("sampler") is None and not isinstance(dataset, IterableDataset):
        chosen["shuffle"] = bool(shuffle)
    return chosen


def _with_workers(options: Mapping[str, Any], workers: int, prefetch: int | None, persistent: bool) -> dict[str, Any]:
    """``options`` with the arguments that are legal for this number of workers."""
    if workers:
        return {
            **options,
            "num_workers": workers,
            "prefetch_factor": prefetch,
            "persistent_workers": persistent,
        }
    without = {name: value for name, value in options.items() if name not in ("timeout", "multiprocessing_context")}
    return {**without, "num_workers": 0}


def _choose_workers(
    dataset: Any,
    explicit: int | None,
    max_workers: int | None,
    options: Mapping[str, Any],
    work: Mapping[str, bool],
) -> tuple[int, str]:
    """Number of worker processes and the reason for it."""
    if explicit is not None:
        return explicit, f"num_workers={explicit} was asked for"
    if not max_workers:
        return 0, "none were asked for"
    if isinstance(dataset, IterableDataset):
        # Each worker runs through its own copy of the dataset: another number would be other data.
        return max_workers, "an iterable dataset keeps the number it was written for"
    if is_in_memory(dataset) and options.get("collate_fn") in (None, default_collate):
        return 0, "the samples are in memory, batches are gathered at once"
    size = _sample_count(dataset, None) or 0
    limit = OptimalDataLoaderFactory.get_optimal_config(size, **work)["num_workers"]
    return min(max_workers, limit), f"up to {max_workers} allowed, {usable_cpus()} CPUs usable"


def _processes(workers: int) -> str:
    return f"{workers} worker process{'' if workers == 1 else 'es'}" if workers else "loading in this process"


def _decided(loader: Any, decision: str) -> DataLoader[Any]:
    """``loader`` with its decision attached and logged."""
    loader.decision = decision
    size = loader.batch_size if loader.batch_size is not None else "as sampled"
    logger.info("%s, batch size %s: %s", type(loader.dataset).__name__, size, decision)
    result: DataLoader[Any] = loader
    return result
