"""One loader whose ways of loading are compared, in the child process: its dataset and how its batches are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from chirp_migrate.training.errors import NotUsable
from chirp_migrate.training.watch.samples import described
from chirp_migrate.tune.document import Candidate
from chirpid_patch import BatchedDataLoader
from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes
from chirpid_patch.machine.accelerator import pinning_device

__all__ = ["Subject", "new_loader", "of_dataset", "of_loader"]

_MATTERING = ("collate_fn", "worker_init_fn", "multiprocessing_context")
"""What matters for loading alone, beside how samples are drawn."""

_KEPT = ("worker_init_fn", "multiprocessing_context", "generator", "drop_last", "timeout")


@dataclass
class Subject:
    """A dataset and how its batches are made.

    Attributes:
        dataset: map-style, with samples.
        role: ``training`` or ``validation``.
        batch_size: samples in a batch; None where ``options`` holds a batch sampler, or nothing is batched.
        options: the other ``DataLoader`` arguments that decide what a batch is.
        now: how it is loaded today; None where that is not known.
        migrated: whether it is loaded by ``chirpid_patch``, else by PyTorch; None where no loader was given.
        asked_workers: worker processes that the replaced call had; what a migrated call has as ``max_workers``.
        unaugmented: the dataset without its augmentation, where the user named it.
        waited_share: share of the training's time spent waiting for it; None without a training.
        setting: see :class:`chirp_migrate.tune.request.LoaderReport`.
    """

    dataset: Any
    role: str
    batch_size: int | None
    options: dict[str, Any] = field(default_factory=dict)
    now: Candidate | None = None
    migrated: bool | None = None
    asked_workers: int = 0
    unaugmented: Any = None
    waited_share: float | None = None
    setting: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Class names of the dataset, outermost first."""
        return described(self.dataset)

    @property
    def collate(self) -> Any:
        """What makes a batch of samples."""
        return self.options.get("collate_fn") or default_collate


def of_dataset(dataset: Any, batch_size: int, role: str = "training") -> Subject:
    """A dataset that no loader was given for: shuffled for training.

    Raises:
        NotUsable: it is no map-style dataset, or is empty.
    """
    _check(dataset)
    return Subject(dataset, role, batch_size, {"shuffle": role == "training"})


def of_loader(loader: Any, role: str) -> Subject:
    """A loader as the training has it.

    Raises:
        NotUsable: its dataset is no map-style dataset, or is empty.
    """
    dataset = loader.dataset
    _check(dataset)
    options: dict[str, Any] = {}
    sampler, batches = loader.sampler, loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        options["batch_sampler"] = batches
    elif type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(dataset):
        options["shuffle"] = True
    elif type(sampler) is not SequentialSampler:
        options["sampler"] = sampler
    if loader.collate_fn is not default_collate and loader.batch_size is not None:
        options["collate_fn"] = loader.collate_fn
    options |= {name: value for name in _KEPT if (value := getattr(loader, name, None))}
    migrated = isinstance(loader, BatchedDataLoader)
    workers = worker_processes(loader)
    ahead = (loader.prefetch_factor or TORCH_PREFETCH) if workers else None
    threads = (loader.prefetch_threads or 0) if migrated and not workers else 0
    now = Candidate(workers, ahead, threads, loader.batch_size)
    return Subject(dataset, role, loader.batch_size, options, now, migrated, asked_workers=loader.num_workers)


def new_loader(subject: Subject, sampling: dict[str, Any], candidate: Candidate) -> DataLoader[Any]:
    """A loader that loads as ``candidate`` does, with workers that stay until it is shut down."""
    threads = candidate.prefetch_threads
    options: dict[str, Any] = {
        **{name: subject.options[name] for name in _MATTERING if subject.options.get(name) is not None},
        **sampling,
        "num_workers": candidate.num_workers,
        "pin_memory": pinning_device() is not None,
    }
    if candidate.num_workers:
        options |= {"persistent_workers": True, "prefetch_factor": candidate.prefetch_factor or TORCH_PREFETCH}
    else:
        options.pop("multiprocessing_context", None)  # which PyTorch refuses without workers
    if not subject.migrated:
        return DataLoader(subject.dataset, **options)
    if threads:
        options |= {"num_workers": threads, "prefetch_factor": 1, "in_process": True}
    return BatchedDataLoader(subject.dataset, prefetch_threads=threads, thread_safe=threads > 0, **options)


def _check(dataset: Any) -> None:
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise NotUsable(
            f"{kind} gives its samples as a stream, and another number of workers would give other samples: tune needs "
            "a dataset with __getitem__ and __len__"
        )
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):
        raise NotUsable(f"{kind} has no length: give it a __len__ that tells its number of samples") from None
    if length == 0:
        raise NotUsable(f"{kind} has no samples: give tune a dataset that is not empty")
