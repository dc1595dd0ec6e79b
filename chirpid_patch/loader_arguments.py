"""The arguments of the functions that build a loader, with their types and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

import torch

from chirpid_patch.distributed.sampling import RankShare, replace_rank_arguments
from chirpid_patch.torch_private import DataLoader

#: Arguments that have an effect only with worker processes.
ABOUT_WORKERS = ("timeout", "multiprocessing_context")


class DatasetIndependentArguments(TypedDict, total=False):
    """The arguments of a loader that do not depend on its dataset.

    Loaders for training and validation can share the values of these arguments.
    """

    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    thread_safe: bool
    prefetch_threads: int | None
    tune: bool | str | Path
    tune_seconds: float
    tune_step: Callable[[Any], object] | None
    distributed: bool
    world_size: int | None
    rank: int | None
    adjust_workers: bool
    device: str | torch.device | None
    resident_share: float | None
    optimize: bool
    benchmark: bool
    has_augmentation: bool
    has_standardization: bool
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool | None
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], Any] | None
    multiprocessing_context: Any
    generator: torch.Generator | None


class LoaderArguments(DatasetIndependentArguments, total=False):
    """Arguments of ``create_training_loader`` except ``dataset``, ``batch_size`` and ``shuffle``."""

    sampler: Any
    batch_sampler: Any
    num_workers: int
    seed: int | None


@dataclass(frozen=True)
class LoaderOptions:
    """The parsed arguments of a call that builds a loader.

    Every other attribute has the same meaning as the argument of ``create_loader`` with this name.

    Attributes:
        batching: arguments that the loader passes to ``DataLoader``, such as ``batch_size``, ``shuffle`` and
            ``collate_fn``.
        pin_memory: whether to pin batches; None if the call does not pass ``pin_memory``.
        num_workers: number of worker processes, as for ``DataLoader``.
        tune: whether to measure loader settings, or the path of the file with saved results.
        share: the rank, the number of ranks and their common seed; None for a single rank.
    """

    dataset: Any
    batching: Mapping[str, Any]
    share: RankShare | None
    pin_memory: bool | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    thread_safe: bool = False
    prefetch_threads: int | None = None
    tune: bool | str | Path = False
    tune_seconds: float = 3.0
    tune_step: Callable[[Any], object] | None = None
    adjust_workers: bool = False
    device: str | torch.device | None = None
    resident_share: float | None = None
    optimize: bool = True
    benchmark: bool = False
    has_augmentation: bool = False
    has_standardization: bool = False

    @property
    def loader_chooses_workers(self) -> bool:
        """Return whether ``tune`` or ``adjust_workers`` makes the loader choose the number of workers."""
        return bool(self.tune) or self.adjust_workers

    @property
    def makes_batches(self) -> bool:
        """Return whether the loader collates samples into batches. If False, the loader yields single samples."""
        return self.batching["batch_size"] is not None or self.batching.get("batch_sampler") is not None

    @classmethod
    def parse(
        cls, dataset: Any, batch_size: int | None, shuffle: bool | None, given: Mapping[str, Any], *, training: bool
    ) -> LoaderOptions:
        """Parse and check the arguments of a call.

        This method does not check the arguments in ``batching``, because ``DataLoader`` checks them later.

        Args:
            dataset: the dataset of the loader.
            batch_size: number of samples in a batch; None for single samples.
            shuffle: whether each epoch has a new random order.
            given: all other arguments, by name.
            training: whether the loader is for training; False for validation and test.

        Raises:
            TypeError: an argument is unknown or has a wrong type.
            ValueError: two arguments contradict each other, or ``DataLoader`` refuses an argument about workers. With
                ``distributed=True``, the method can also raise the errors of
                ``distributed.sampling.replace_rank_arguments``.
        """
        unknown = ", ".join(sorted(given.keys() - LoaderArguments.__annotations__.keys()))
        if unknown:
            raise TypeError(f"unexpected keyword argument of a loader: {unknown}")
        rest = {**given, "batch_size": batch_size}
        share = replace_rank_arguments(dataset, bool(shuffle), rest, training=training)
        rest["shuffle"] = shuffle if share is None else False  # the sampler of the ranks determines the order
        defaults = {one.name: one.default for one in fields(cls) if one.default is not MISSING and one.name in rest}
        own: dict[str, Any] = {
            name: bool(rest.pop(name)) if type(usual) is bool and name != "tune" else rest.pop(name)
            for name, usual in defaults.items()
        }
        options = cls(dataset, rest, share, **own)
        options._check_choices()
        options._check_worker_arguments()
        return options

    def _check_choices(self) -> None:
        """Raise an error if arguments contradict each other, or if an argument would have no effect."""
        if not isinstance(self.tune, bool | str | Path):
            raise TypeError(f"tune must be True, False or the path of a file, not {self.tune!r}")
        if self.adjust_workers and self.share is not None:
            raise ValueError("adjust_workers and distributed=True exclude each other: pass only one of them")
        if self.adjust_workers and self.tune:
            raise ValueError("adjust_workers and tune both choose the number of workers: pass only one of them")
        if not self.tune and (self.tune_step is not None or self.tune_seconds != LoaderOptions.tune_seconds):
            raise ValueError("tune_seconds and tune_step configure the measurement: pass tune=True with them")

    def _check_worker_arguments(self) -> None:
        """Raise ``DataLoader``'s errors for wrong worker arguments, even if the loader starts no workers."""
        about = {name: self.batching[name] for name in ABOUT_WORKERS if name in self.batching}
        # One worker is enough for these checks. With many workers, PyTorch could warn about the number of CPUs.
        workers = self.num_workers if self.num_workers < 1 and not self.loader_chooses_workers else 1
        prefetch, persistent = self.prefetch_factor, self.persistent_workers
        DataLoader((), num_workers=workers, prefetch_factor=prefetch, persistent_workers=persistent, **about)  # type: ignore[arg-type]
