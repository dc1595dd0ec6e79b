"""Define :class:`MeasuredDataset`: a dataset that ``tune`` measures, with the loader arguments of all measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.watch.nested_datasets import nested_class_names
from chirp_migrate.tune.tune_report import CandidateSettings, LoaderReport
from chirpid_patch import BatchedDataLoader
from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes

_KEPT = ("worker_init_fn", "multiprocessing_context", "generator", "drop_last", "timeout")


@dataclass
class MeasuredDataset:
    """A dataset for which ``tune`` compares loader settings, and the loader arguments that all measurements share.

    Attributes:
        dataset: the dataset, which is map-style and not empty.
        report: the report on the loader, to which the measurement adds its results.
        options: arguments of ``DataLoader`` that stay the same in all measurements, such as ``shuffle`` and
            ``collate_fn``.
        asked_workers: value of ``num_workers`` in the user's own code or configuration file; 0 without such a value.
        unaugmented: the same dataset without augmentation; None if the user named no such dataset.
    """

    dataset: Any
    report: LoaderReport
    options: dict[str, Any]
    asked_workers: int = 0
    unaugmented: Any = None

    @property
    def collate(self) -> Any:
        """Return the function that combines samples into a batch."""
        return self.options.get("collate_fn") or default_collate


def prepare_dataset_measurement(dataset: Any, batch_size: int, uses_runtime: bool) -> MeasuredDataset:
    """Prepare the measurement of a dataset for which the user has no loader.

    The measured loader shuffles, as for training.

    Args:
        dataset: the dataset.
        batch_size: number of samples in a batch.
        uses_runtime: whether to measure the loader of ``chirpid_patch``; False to measure PyTorch's loader.

    Raises:
        TaskNotPossible: the dataset is not map-style, or is empty.
    """
    _check_is_measurable(dataset)
    report = LoaderReport(nested_class_names(dataset), "training", batch_size, len(dataset), uses_runtime)
    return MeasuredDataset(dataset, report, {"shuffle": True})


def prepare_loader_measurement(loader: Any, role: str) -> MeasuredDataset:
    """Prepare the measurement of a loader of the user, with its dataset and its arguments.

    Args:
        loader: the loader.
        role: purpose of the loader, ``training`` or ``validation``.

    Raises:
        TaskNotPossible: the dataset of the loader is not map-style, or is empty.
    """
    dataset = loader.dataset
    _check_is_measurable(dataset)
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
    now = CandidateSettings(workers, ahead, threads, loader.batch_size)
    report = LoaderReport(nested_class_names(dataset), role, loader.batch_size, len(dataset), migrated, now)
    return MeasuredDataset(dataset, report, options, loader.num_workers)


def _check_is_measurable(dataset: Any) -> None:
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise TaskNotPossible(
            f"{kind} is an iterable dataset, whose samples depend on the number of workers: tune needs "
            "a dataset with __getitem__ and __len__"
        )
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):
        raise TaskNotPossible(f"{kind} has no length: add a __len__ that returns its number of samples") from None
    if length == 0:
        raise TaskNotPossible(f"{kind} has no samples: pass a dataset that is not empty")
