"""A base class for your own loaders, which manages workers, threads and CUDA streams."""

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
from chirpid_patch.factory import create_training_loader, create_validation_loader
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes
from chirpid_patch.machine.accelerator import pinning_device

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MOST_WEIGHTS = 2**24  # limit of torch.multinomial, which PyTorch's weighted sampler calls

#: Maps private attributes of the loader classes that ``WrappedDataLoader`` replaces to texts about the replacements.
REMOVED = {
    "_use_streams": "use `_pin_memory`, which lets copies of batches overlap with the computation",
    "_streams": "use `_pin_memory`, which lets copies of batches overlap with the computation",
    "_stream_assignments": "all batches are copied to `device` on one stream",
    "_worker_executor": "use `_num_workers`; `_pytorch_loader` is the loader that has the workers",
    "_init_workers": "pass `num_workers`: the workers start when the first batch is requested",
    "_cleanup_workers": "call `shutdown()`",
    "_calculate_batch_memory_mb": "measure memory with `DataLoaderPerformanceMonitor().memory_status()`",
}
#: Attributes that cannot change after the loader is built, as in ``torch.utils.data.DataLoader``.
_FIXED = frozenset(
    {"batch_sampler", "batch_size", "dataset", "drop_last", "num_workers", "persistent_workers", "sampler"}
)


class FactoryArguments(TypedDict, total=False):
    """Arguments that a ``WrappedDataLoader`` passes on to ``OptimalDataLoaderFactory``."""

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
    """A loader that yields batches on a device, for use as a base class of your own loaders.

        class TileLoader(WrappedDataLoader):
            def collate_fn(self, samples):
                return {"tile": torch.stack([s["tile"] for s in samples])}
        loader = TileLoader(dataset, batch_size=16, num_workers=8, weighted_sampler=weights)
        for batch in loader: ...

    This object wraps a ``torch.utils.data.DataLoader``, the inner loader, which ``OptimalDataLoaderFactory`` builds.
    ``loader[3]`` returns sample 3 as a batch, and ``loader[[3, 5]]`` returns two samples as a batch. This object also
    has all public attributes of the inner loader. An assignment to an attribute that is fixed after construction raises
    ValueError, as in PyTorch's loader. ``loader._pytorch_loader`` is the inner loader. Pass the inner loader to a
    framework that needs a ``DataLoader``; the inner loader does not move its batches to the device. A pickled loader
    contains everything except processes and threads.

    Args:
        dataset: map-style or iterable dataset.
        batch_size: number of samples in a batch.
        num_workers: number of worker processes. If the dataset is in memory and ``collate_fn`` is PyTorch's default,
            the loader starts no workers. The main process then reads all samples of a batch at once, which is faster.
        is_train: whether the loader is for training. With True, the loader shuffles unless another argument defines the
            order, and omits an incomplete last batch if ``drop_last`` is True. With False, the loader yields all
            samples, in order, unless another argument selects the samples or the order. With False, the loader ignores
            ``drop_last=True`` and warns.
        sampler: a sampler, a list of indices, or a function that returns a sampler or such a list. ``refresh`` calls
            the function again. The loader passes the arguments ``num_samples``, ``batch_size`` and ``rng`` if the
            function has parameters with these names. None: no sampler.
        weighted_sampler: a weight for each sample; the loader draws samples with replacement, in proportion to the
            weights. True: use the sampler that the dataset's method ``get_weighted_sampler`` returns, or the weights in
            the dataset's attribute ``sample_weights``. ``refresh`` calls the method again. False: no weights.
        indices: indices of the samples to use, or a function that returns the indices. ``refresh`` calls the function
            again. None: all samples.
        iterations_per_epoch: number of batches in an epoch. With ``weighted_sampler`` or a function as ``sampler``,
            ``num_samples`` is then ``iterations_per_epoch * batch_size``. Otherwise the loader selects random samples,
            and in an epoch, no sample repeats before all samples have occurred. None: an epoch contains all samples.
        rng: generator with which samples are drawn; None means PyTorch's global generator.
        device: the device to which a ``DevicePrefetcher`` moves batches; None: the accelerator if there is one, else
            the CPU.
        pin_memory: whether batches are in pinned memory. None: batches are pinned if pinned memory makes copies to
            ``device`` faster. Without an accelerator, batches are never pinned.
        persistent_workers: whether the workers stay alive from epoch to epoch; None means True.
        prefetch_factor: number of batches that each worker loads in advance; None: 2.
        collate_fn: function that builds a batch from a list of samples; None means PyTorch's ``default_collate``.
            Alternatively, a subclass may define a method ``collate_fn``, which the workers call. With the start methods
            ``spawn`` and ``forkserver``, such a loader is pickled for the workers, so all attributes of the loader must
            be picklable.
        further: other arguments of ``create_loader``, listed in ``FactoryArguments``.

    Raises:
        ValueError: two arguments contradict each other, an argument does not fit the dataset, or the CUDA device does
            not exist.
        TypeError: ``weighted_sampler`` is True, and the dataset has no weights.
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
        **further: Unpack[FactoryArguments],
    ) -> None:
        target = torch.device(device) if device is not None else _default_device()
        self.is_train = is_train
        self.rng = rng
        self.weighted_sampler = weighted_sampler
        self.iterations_per_epoch = iterations_per_epoch
        self._collate = collate_fn or default_collate
        chosen = _sampler(dataset, batch_size, is_train, sampler, weighted_sampler, indices, iterations_per_epoch, rng)
        self._resampled = chosen if isinstance(chosen, RefreshableSampler) else None

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
        create = create_training_loader if is_train else create_validation_loader
        #: The inner loader, a ``torch.utils.data.DataLoader``.
        self._pytorch_loader: DataLoader[Any] = create(dataset, batch_size, **options)
        self._moved = DevicePrefetcher(self._pytorch_loader, target)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._moved)

    def __len__(self) -> int:
        return len(self._pytorch_loader)

    def __getitem__(self, index: Any) -> Any:
        """Return the batch of the samples at ``index``, on ``device``.

        Args:
            index: an integer, a slice, or a sequence of integers.
        """
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
        """Return this loader itself."""
        return self

    def refresh(self) -> None:
        """Call the function again that was passed as ``sampler`` or ``indices``, and use its result in the next epoch.

        With ``weighted_sampler=True``, call ``get_weighted_sampler`` of the dataset again, if the dataset has this
        method. Without such a function or method, ``refresh`` does nothing.
        """
        if self._resampled is not None:
            self._resampled.refresh()

    def collate_fn(self, samples: Any) -> Any:
        """Return the batch of a list of samples, on the CPU. Subclasses may override this method."""
        return self._collate(samples)

    def to(self, device: str | torch.device) -> WrappedDataLoader:
        """Move batches to ``device`` from the next epoch on, and return this loader. ``pin_memory`` does not change."""
        self._moved = DevicePrefetcher(self._pytorch_loader, device)
        return self

    def shutdown(self) -> None:
        """End the worker processes and threads of the loader. The next iteration starts new processes and threads."""
        shut_down_workers(self._pytorch_loader)

    @property
    def _pin_memory(self) -> bool:
        loader = self._pytorch_loader
        return pinning_device() is not None and (loader.pin_memory or getattr(loader, "pins_own_batches", False))

    @property
    def _prefetch_factor(self) -> int | None:
        """Return the number of batches that each worker loads in advance; None without workers."""
        return self._pytorch_loader.prefetch_factor if self._num_workers else None

    @property
    def _persistent_workers(self) -> bool:
        return self._pytorch_loader.persistent_workers and self._num_workers > 0

    @property
    def _num_workers(self) -> int:
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
            raise ValueError(f"{name} cannot be set after the loader is built: build a new loader")
        super().__setattr__(name, value)


class RefreshableSampler(Sampler[Any]):
    """A sampler whose method ``refresh`` replaces its indices, without a new loader or new workers.

    Args:
        draw: function that returns a sampler, or a list of indices.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw
        #: The sampler or the list of indices that is now in use.
        self.current = draw()

    def refresh(self) -> None:
        """Call ``draw`` again, and use the new sampler or indices from the next epoch on."""
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
    """Return the sampler for the arguments of ``WrappedDataLoader``; None if no argument needs a sampler."""
    by_weight = weighted is not False and weighted is not None
    passed = {"sampler": sampler is not None, "weighted_sampler": by_weight, "indices": indices is not None}
    given = [name for name, is_passed in passed.items() if is_passed]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: pass only one of them")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations_per_epoch must be a number of batches, 1 or more, not {iterations}")
    wanted = None if iterations is None else iterations * batch_size
    if by_weight or callable(sampler):
        offers = {"num_samples": wanted or len(dataset), "batch_size": batch_size, "rng": rng}
        if by_weight:
            return _weighted_sampler(dataset, weighted, offers)
        return RefreshableSampler(partial(_call_with_known, sampler, offers))
    if given and wanted is not None:
        raise ValueError(
            f"iterations_per_epoch and {given[0]} exclude each other: {given[0]} determines the number of samples"
        )
    if indices is not None:
        draw = partial(_subset, dataset, indices, is_train, rng)
        return RefreshableSampler(draw) if callable(indices) else draw()
    if wanted is not None:
        return RandomSampler(dataset, num_samples=wanted, generator=rng)
    return sampler


def _weighted_sampler(dataset: Any, weighted: Any, offers: dict[str, Any]) -> Sampler[Any]:
    if weighted is True:
        function = getattr(dataset, "get_weighted_sampler", None)
        if function is not None:
            return RefreshableSampler(partial(_call_with_known, function, offers))
        weighted = getattr(dataset, "sample_weights", None)
        if weighted is None:
            raise TypeError(
                f"weighted_sampler=True needs weights, but {type(dataset).__name__} has neither get_weighted_sampler "
                "nor sample_weights: pass weighted_sampler=weights"
            )
    weights = torch.as_tensor(weighted, dtype=torch.double)
    if weights.shape != (len(dataset),):
        raise ValueError(
            f"weighted_sampler has the shape {tuple(weights.shape)}: pass a weight for each of {len(dataset)} samples"
        )
    if len(weights) > _MOST_WEIGHTS:
        raise ValueError(
            f"PyTorch supports at most {_MOST_WEIGHTS} weights, not {len(weights)}: pass a sampler function that draws "
            "the samples of an epoch"
        )
    return WeightedRandomSampler(weights, offers["num_samples"], generator=offers["rng"])  # type: ignore[arg-type]


def _subset(dataset: Any, indices: Any, is_train: bool, rng: torch.Generator | None) -> Any:
    """Return a sampler for the samples at ``indices``. For training, the sampler shuffles the indices."""
    positions = torch.as_tensor(indices() if callable(indices) else indices)
    if positions.numel() and (positions.ndim != 1 or positions.dtype == torch.bool or positions.is_floating_point()):
        raise ValueError("indices must be a sequence of integers: convert a mask with numpy.flatnonzero(mask)")
    if positions.numel() and not -len(dataset) <= int(positions.min()) <= int(positions.max()) < len(dataset):
        raise ValueError(f"an index in indices is out of range for {len(dataset)} samples")
    found: list[int] = positions.tolist()
    return SubsetRandomSampler(found, generator=rng) if is_train else found


def _call_with_known(function: Callable[..., Any], offers: dict[str, Any]) -> Any:
    """Call ``function`` with those arguments in ``offers`` that ``function`` accepts, and return the result."""
    known = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        return function(**offers)
    return function(**{name: offers[name] for name in offers.keys() & {one.name for one in known}})


def _default_device() -> torch.device:
    kind = pinning_device()
    if kind is None and torch.backends.mps.is_available():
        kind = "mps"
    return torch.device(kind or "cpu")
