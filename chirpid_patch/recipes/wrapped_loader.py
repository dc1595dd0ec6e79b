"""A base class for loaders, in place of a class with its own workers, threads and CUDA streams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from chirpid_patch.datasets.samples import load_batch
from chirpid_patch.device.move_ahead import DevicePrefetcher, move_batch
from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes
from chirpid_patch.machine.accelerator import pinning_device

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MOST_WEIGHTS = 2**24  # of torch.multinomial, which a weighted sampler draws with

#: Private attributes of such loaders that this class lacks, with their replacements.
REMOVED = {
    "_use_streams": "use `_pin_memory`: batches in pinned memory are copied while the device computes",
    "_streams": "use `_pin_memory`: batches in pinned memory are copied while the device computes",
    "_stream_assignments": "each batch is copied to `device` at once",
    "_worker_executor": "use `_num_workers`; `_pytorch_loader` is the loader that has the workers",
    "_init_workers": "pass `num_workers`: the workers start with the first batch",
    "_cleanup_workers": "call `shutdown()`",
    "_calculate_batch_memory_mb": "measure it: `DataLoaderPerformanceMonitor().memory_status()`",
}
#: Arguments that cannot change after the loader is built, as in ``torch.utils.data.DataLoader``.
_FIXED = frozenset(
    {"batch_sampler", "batch_size", "dataset", "drop_last", "num_workers", "persistent_workers", "sampler"}
)


class FurtherArguments(TypedDict, total=False):
    """Arguments of ``DataLoader`` and ``OptimalDataLoaderFactory`` that a ``WrappedDataLoader`` passes on."""

    batch_sampler: Any
    shuffle: bool | None
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], Any] | None
    multiprocessing_context: Any
    generator: torch.Generator | None
    thread_safe: bool
    prefetch_threads: int | None
    tune: bool | str | Path
    tune_seconds: float


class WrappedDataLoader:
    """Yield batches of a dataset on a device, loaded by the factory: a base class for your own loader.

        class TileLoader(WrappedDataLoader):
            def collate_fn(self, samples):
                return {"tile": torch.stack([s["tile"] for s in samples])}

        loader = TileLoader(dataset, batch_size=16, num_workers=8, weighted_sampler=weights)
        for batch in loader: ...

    ``loader.loader`` yields the same batches. ``loader[3]`` and ``loader[[3, 5]]`` return the batch of those samples.
    Every public attribute of the inner ``DataLoader`` can be read here; setting an attribute that is fixed after
    construction raises ValueError, as with PyTorch. The inner loader, whose batches are not moved, is
    ``loader._pytorch_loader``: pass it to a framework that needs a ``DataLoader``. A pickled loader includes everything
    except processes and threads.

    Args:
        dataset: map-style or iterable dataset.
        batch_size: samples in a batch.
        num_workers: number of worker processes. Samples in memory need none, which is faster.
        is_train: shuffle (unless a sampling below is set), and use ``drop_last``. False yields all samples, in order.
        sampler: a sampler, indices in order, or a function that returns a sampler or indices. ``refresh`` calls the
            function again. The function gets the arguments ``num_samples``, ``batch_size`` and ``rng`` as far as it has
            parameters of these names.
        weighted_sampler: weights of the samples, drawn with replacement. True uses ``get_weighted_sampler`` (called
            like a ``sampler`` function) or ``sample_weights`` of the dataset.
        indices: indices of the samples to use, or a function that returns them; ``refresh`` calls it again.
        iterations_per_epoch: batches in an epoch; each epoch draws that many samples, with or without weights.
        rng: generator of the sampling; None is PyTorch's global one.
        device: the device to which a ``DevicePrefetcher`` moves batches; None is the accelerator, or the CPU without
            one.
        pin_memory: load into pinned memory; None pins if ``device`` gains from it. Without an accelerator, no batch is
            pinned.
        persistent_workers: keep the workers from epoch to epoch; None keeps them. This has no effect without workers.
        prefetch_factor: batches that each worker loads ahead; None is 2. This has no effect without workers.
        collate_fn: builds a batch from a list of samples; None is PyTorch's default. A subclass may define a method
            ``collate_fn`` instead. With workers it runs in the workers, and the loader is pickled with it.
        further: as for ``DataLoader`` and ``OptimalDataLoaderFactory``.

    Raises:
        ValueError: samplings that exclude each other or do not fit the dataset, or a CUDA device that does not exist.
        TypeError: ``weighted_sampler=True`` for a dataset without weights.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        num_workers: int = 0,
        is_train: bool = True,
        *,
        sampler: Any = None,
        weighted_sampler: bool | Sequence[float] | Tensor = False,
        indices: Any = None,
        iterations_per_epoch: int | None = None,
        rng: torch.Generator | None = None,
        device: str | torch.device | None = None,
        pin_memory: bool | None = None,
        persistent_workers: bool | None = None,
        prefetch_factor: int | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        **further: Unpack[FurtherArguments],
    ) -> None:
        target = torch.device(device) if device is not None else _default_device()
        self.is_train = is_train
        self.rng = rng
        self.weighted_sampler = weighted_sampler
        self.iterations_per_epoch = iterations_per_epoch
        self._collate = collate_fn or default_collate
        chosen = _sampler(dataset, batch_size, is_train, sampler, weighted_sampler, indices, iterations_per_epoch, rng)
        self._resampled = chosen if isinstance(chosen, ResampledSampler) else None

        options: dict[str, Any] = {"generator": rng, **further}
        profits = target.type == pinning_device()
        options["pin_memory"] = False if pin_memory is None and not profits else pin_memory
        options["persistent_workers"] = bool(num_workers) and persistent_workers is not False
        options["num_workers"] = num_workers
        if num_workers:
            options["prefetch_factor"] = TORCH_PREFETCH if prefetch_factor is None else prefetch_factor
        if chosen is not None:
            options["sampler"] = chosen
        elif options.get("batch_sampler") is None and not isinstance(dataset, IterableDataset):
            options.setdefault("shuffle", is_train)
        own = type(self).collate_fn is not WrappedDataLoader.collate_fn
        options["collate_fn"] = self.collate_fn if own else collate_fn
        create = (
            OptimalDataLoaderFactory.create_training_loader
            if is_train
            else OptimalDataLoaderFactory.create_validation_loader
        )
        #: PyTorch's loader underneath.
        self._pytorch_loader: DataLoader[Any] = create(dataset, batch_size, **options)
        self._moved = DevicePrefetcher(self._pytorch_loader, target)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._moved)

    def __len__(self) -> int:
        return len(self._pytorch_loader)

    def __getitem__(self, index: Any) -> Any:
        """Return, on ``device``, the batch of one sample, of the samples in a slice, or at a sequence of positions."""
        if isinstance(index, slice):
            positions = list(range(len(self.dataset))[index])
        else:
            positions = torch.as_tensor(index).reshape(-1).tolist()
        return move_batch(load_batch(self.dataset, positions, None, self._pytorch_loader.collate_fn), self.device)

    @property
    def device(self) -> torch.device:
        """Return the device of the batches."""
        return self._moved.device

    @property
    def loader(self) -> WrappedDataLoader:
        """Return the loader itself, which yields the batches."""
        return self

    def refresh(self) -> None:
        """Call sampler and index functions again. All other sampling is new in every epoch."""
        if self._resampled is not None:
            self._resampled.refresh()

    def collate_fn(self, samples: Any) -> Any:
        """Return the batch, on the CPU, of a list of samples; subclasses may override it."""
        return self._collate(samples)

    def to(self, device: str | torch.device) -> WrappedDataLoader:
        """Move batches to ``device`` from the next epoch on; pinning of memory does not change."""
        self._moved = DevicePrefetcher(self._pytorch_loader, device)
        return self

    def shutdown(self) -> None:
        """End worker processes and threads now; the next iteration starts them again."""
        shut_down_workers(self._pytorch_loader)

    @property
    def _pin_memory(self) -> bool:
        """Return whether batches are loaded into pinned memory."""
        loader = self._pytorch_loader
        return pinning_device() is not None and (loader.pin_memory or getattr(loader, "pins_own_batches", False))

    @property
    def _prefetch_factor(self) -> int | None:
        """Return the number of batches that each worker loads ahead; None without workers."""
        return self._pytorch_loader.prefetch_factor if self._num_workers else None

    @property
    def _persistent_workers(self) -> bool:
        """Return whether workers stay from epoch to epoch."""
        return self._pytorch_loader.persistent_workers and self._num_workers > 0

    @property
    def _num_workers(self) -> int:
        """Return the number of worker processes."""
        return worker_processes(self._pytorch_loader)

    def __getattr__(self, name: str) -> Any:
        if name in REMOVED:
            raise AttributeError(f"{type(self).__name__} has no {name} any more: {REMOVED[name]}")
        loader = self.__dict__.get("_pytorch_loader")
        if loader is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_pytorch_loader" in self.__dict__:
            raise ValueError(f"{name} cannot be set after the loader is built: build a new loader with it")
        super().__setattr__(name, value)


class ResampledSampler(Sampler[Any]):
    """A sampler whose order ``refresh`` replaces, so that the loader and its workers stay the same.

    Args:
        draw: returns the sampler, or indices in order.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw
        #: The indices to sample from.
        self.current = draw()

    def refresh(self) -> None:
        """Draw a new sampler, from the next epoch on."""
        self.current = self._draw()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.current)

    def __len__(self) -> int:
        return len(self.current)


def _sampler(
    dataset: Any,
    batch_size: int,
    is_train: bool,
    sampler: Any,
    weighted: bool | Sequence[float] | Tensor,
    indices: Any,
    iterations: int | None,
    rng: torch.Generator | None,
) -> Any:
    """Return the sampler that these arguments define; None for all samples, in the order of the loader."""
    by_weight = weighted is not False and weighted is not None
    asked = {"sampler": sampler is not None, "weighted_sampler": by_weight, "indices": indices is not None}
    given = [name for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: pass only one of them")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations_per_epoch must be a number of batches, 1 or more, not {iterations}")
    wanted = None if iterations is None else iterations * batch_size
    if by_weight or callable(sampler):
        offers = {"num_samples": wanted or len(dataset), "batch_size": batch_size, "rng": rng}
        if by_weight:
            return _by_weight(dataset, weighted, offers)
        return ResampledSampler(partial(_call_with_known, sampler, offers))
    if given and wanted is not None:
        raise ValueError(
            f"iterations_per_epoch and {given[0]} exclude each other: {given[0]} sets how many samples are drawn"
        )
    if indices is not None:
        draw = partial(_subset, dataset, indices, is_train, rng)
        return ResampledSampler(draw) if callable(indices) else draw()
    if wanted is not None:
        return RandomSampler(dataset, num_samples=wanted, generator=rng)
    return sampler


def _by_weight(dataset: Any, weighted: Any, offers: dict[str, Any]) -> Sampler[Any]:
    if weighted is True:
        function = getattr(dataset, "get_weighted_sampler", None)
        if function is not None:
            return ResampledSampler(partial(_call_with_known, function, offers))
        weighted = getattr(dataset, "sample_weights", None)
        if weighted is None:
            raise TypeError(
                f"weighted_sampler=True: {type(dataset).__name__} has no get_weighted_sampler and no sample_weights; "
                "pass the weights, weighted_sampler=weights"
            )
    weights = torch.as_tensor(weighted, dtype=torch.double)
    if weights.shape != (len(dataset),):
        raise ValueError(
            f"weighted_sampler has weights of shape {tuple(weights.shape)} for {len(dataset)} samples: one each"
        )
    if len(weights) > _MOST_WEIGHTS:
        raise ValueError(
            f"PyTorch draws from at most {_MOST_WEIGHTS} weights, not {len(weights)}: pass a sampler function that "
            "draws the samples of one epoch"
        )
    return WeightedRandomSampler(weights, offers["num_samples"], generator=offers["rng"])  # type: ignore[arg-type]


def _subset(dataset: Any, indices: Any, is_train: bool, rng: torch.Generator | None) -> Any:
    """Return a sampler of these positions: shuffled for training, else the positions in their order."""
    positions = torch.as_tensor(indices() if callable(indices) else indices)
    if positions.numel() and (positions.ndim != 1 or positions.dtype == torch.bool or positions.is_floating_point()):
        raise ValueError("indices must be a sequence of positions; of a mask, take its nonzero()")
    if positions.numel() and not -len(dataset) <= int(positions.min()) <= int(positions.max()) < len(dataset):
        raise ValueError(f"indices name a sample that the dataset of {len(dataset)} does not have")
    found: list[int] = positions.tolist()
    return SubsetRandomSampler(found, generator=rng) if is_train else found


def _call_with_known(function: Callable[..., Any], offers: dict[str, Any]) -> Any:
    """Call ``function`` with those of ``offers`` that it has parameters for, and return the result."""
    known = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        return function(**offers)
    return function(**{name: offers[name] for name in offers.keys() & {one.name for one in known}})


def _default_device() -> torch.device:
    kind = pinning_device()
    if kind is None and torch.backends.mps.is_available():
        kind = "mps"
    return torch.device(kind or "cpu")
