"""Functions that build loaders and choose the loading mode for the dataset, the CPUs and the device.

``_choose_workers`` contains the rules that decide whether a loader uses worker processes, threads or neither.
``docs/factory.md`` describes the rules.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Generator
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import is_stacking_collate
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.distributed.epochs import RankEpochs
from chirpid_patch.loader_arguments import ABOUT_WORKERS, LoaderArguments, LoaderOptions
from chirpid_patch.loader_speed.profiles import (
    default_profile_path,
    loader_choice_key,
    read_loader_choice,
    save_loader_choice,
)
from chirpid_patch.loader_speed.search import LoaderChoice, choose_loading_mode
from chirpid_patch.loading.batch_timer import TimedBatches, log_or_print, log_waits
from chirpid_patch.loading.limits import describe_loading_mode
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.patched_loader import find_loader_replacement, is_loader_class_patched
from chirpid_patch.loading.placement import Placement
from chirpid_patch.loading.worker_start import why_workers_cannot_start
from chirpid_patch.machine import cpus
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.torch_private import DataLoader

if TYPE_CHECKING:
    from typing_extensions import Unpack


logger = logging.getLogger("chirpid_patch")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _NotGiven(Enum):
    """The type of the default of ``shuffle``.

    With this default, the loader shuffles, unless a sampler or an iterable dataset determines the order.
    """

    NOT_GIVEN = "shuffle unless a sampler or an iterable dataset defines the order"

    def __repr__(self) -> str:
        return "NOT_GIVEN"


_NOT_GIVEN = _NotGiven.NOT_GIVEN


def _calls_changed_loader(is_plain: Callable[[Mapping[str, Any]], bool]) -> Callable[[_Function], _Function]:
    """Return a decorator for functions that build loaders.

    Other code, such as a test, may have changed or replaced ``DataLoader`` or ``BatchedDataLoader``. In this case, the
    decorated function builds the loader with the changed class or the replacement, so that the change takes effect. The
    changed class gets only the arguments that ``DataLoader`` has. The decorated function ignores the change in two
    cases: ``is_plain`` returns False, or the call passes an argument that ``DataLoader`` lacks, such as ``tune``, with
    a value that is not the default. In the second case, ``optimize`` does not count.

    Args:
        is_plain: function whose argument is the dictionary of the keyword arguments. The function returns whether
            ``DataLoader`` builds the same loader from these keyword arguments.
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def create(*args: Any, **options: Any) -> Any:
            changed = (kind for kind in (DataLoader, BatchedDataLoader) if is_loader_class_patched(kind))
            make = find_loader_replacement() or next(changed, None)
            own = {name: value for name, value in options.items() if name in _OWN_ARGUMENTS and name != "optimize"}
            if make is None or not is_plain(options) or any(own[name] != _DEFAULTS[name] for name in own):
                return function(*args, **options)
            logger.debug("other code has changed or replaced DataLoader, so %r builds the loader", make)
            return make(*args, **{name: value for name, value in options.items() if name not in _OWN_ARGUMENTS})

        return cast(_Function, create)

    return decorate


@_calls_changed_loader(lambda options: True)
def create_loader(
    dataset: Any,
    batch_size: int | None = 1,
    shuffle: bool | None = None,
    sampler: Any = None,
    batch_sampler: Any = None,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool | None = None,
    drop_last: bool = False,
    timeout: float = 0,
    worker_init_fn: Callable[[int], Any] | None = None,
    multiprocessing_context: Any = None,
    generator: Generator | None = None,
    *,
    prefetch_factor: int | None = None,
    persistent_workers: bool = False,
    pin_memory_device: str = "",
    in_order: bool = True,
    thread_safe: bool = False,
    prefetch_threads: int | None = None,
    tune: bool | str | Path = False,
    tune_seconds: float = 3.0,
    tune_step: Callable[[Any], object] | None = None,
    adjust_workers: bool = False,
    distributed: bool = False,
    world_size: int | None = None,
    rank: int | None = None,
    seed: int | None = None,
    device: str | torch.device | None = None,
    resident_share: float | None = None,
    optimize: bool = True,
    benchmark: bool = False,
    has_augmentation: bool = False,
    has_standardization: bool = False,
) -> DataLoader[Any]:
    """Build a loader from the arguments of ``torch.utils.data.DataLoader``, for training, validation or test.

    The loader chooses its loading mode: whole batches in this process, threads, or worker processes. The attribute
    ``loader.decision`` describes this loading mode with the reason for the choice. The logger ``chirpid_patch`` logs
    this text at level DEBUG. Attributes such as ``loader.num_workers`` have the values of the arguments, even if an
    argument has no effect.

    Args:
        dataset: map-style or iterable dataset.
        batch_size: number of samples in a batch; None yields single samples.
        shuffle: whether each epoch has a new random order. None: no shuffling, as for ``DataLoader``.
        sampler: iterable over the indices of an epoch, in the order in which the loader reads the samples. Do not also
            pass ``shuffle=True``.
        batch_sampler: iterable that yields a list of indices for each batch of an epoch. Do not also pass
            ``batch_size``, ``shuffle``, ``sampler`` or ``drop_last``.
        num_workers: number of worker processes. For samples in memory, a loader with PyTorch's default collation starts
            no workers, because batched reading is faster. With ``tune``, the loader may start fewer workers than
            ``num_workers``.
        collate_fn: function that builds a batch from a list of samples; None means PyTorch's ``default_collate``.
        pin_memory: whether batches are in pinned memory. None: if there is an accelerator, the loader pins the dense
            tensors in batches of a map-style dataset, if ``default_collate`` or ``collate_pairs`` builds the batches.
            With ``device`` or ``optimize=False``, None means False.
        drop_last: whether to omit an incomplete last batch.
        timeout: seconds to wait for a batch from a worker; 0 waits without limit.
        worker_init_fn: function that each worker process calls at its start, with the number of the worker (0, 1, …).
        multiprocessing_context: start method of the worker processes, such as ``"spawn"``, or a context of
            ``multiprocessing``; None means Python's default.
        generator: random generator for the order and the workers' seeds; None means PyTorch's global generator.
        prefetch_factor: number of batches that each worker loads in advance; None: the default of ``DataLoader``.
        persistent_workers: whether the workers stay alive from epoch to epoch.
        pin_memory_device: as for ``DataLoader``.
        in_order: as for ``DataLoader``.
        thread_safe: True declares that several threads may use the dataset and ``collate_fn`` at the same time, and
            that neither uses a global random generator. With True, threads replace the worker processes.
        prefetch_threads: number of threads that load batches in advance if there are no worker processes. None: the
            loader measures during the training whether threads help.
        tune: whether to measure which number of workers loads fastest. The loader tries at most ``num_workers``
            workers, or at most 8 workers if ``num_workers`` is 0. The loader saves the result for this dataset and
            machine in a file, and later loaders reuse the result. If ``tune`` is a path, the file has this path. If
            ``tune`` is True, the environment variable ``CHIRPID_PROFILE`` determines the path; without this variable,
            the file is in the user's cache folder.
        tune_seconds: seconds that the measurement for ``tune`` takes. With 0, the loader only uses a saved result, and
            never measures.
        tune_step: function that imitates a training step. The measurement for ``tune`` calls this function with each
            batch. None: the measurement only loads batches.
        adjust_workers: whether the loader changes the number of workers between epochs. The loader starts more workers
            if the training waited for batches, and fewer workers if the training did not wait.
        distributed: whether to divide the samples among the ranks of ``torch.distributed`` or torchrun (see
            ``distributed.sampling`` and ``distributed.epochs``). With a single rank, the loader reads all samples, and
            ``seed`` still has an effect. With ``optimize=False`` and several ranks, call
            ``loader.sampler.set_epoch(epoch)`` before each epoch.
        world_size: number of ranks; needed only if neither ``torch.distributed`` nor torchrun defines the number.
        rank: rank of this process; needed only if neither ``torch.distributed`` nor torchrun defines the rank.
        seed: with ``distributed``, the seed of the order, the augmentation and the workers. None: 0 for several ranks,
            and no seed for a single rank.
        device: device of the batches. If the samples can be stored on the device and take at most ``resident_share`` of
            its free memory, the loader copies all samples to the device once. Otherwise the loader moves each batch to
            the device. None: batches stay on the device of the dataset's samples.
        resident_share: share of the device's free memory that the samples may take, above 0 and at most 1. None: 0.5 if
            ``device`` is an accelerator. If ``device`` is the CPU, None means that the loader does not copy the
            samples.
        optimize: whether to build a loader of this package; False builds PyTorch's own loader.
        benchmark: whether to log the data wait of each epoch at level INFO. If the program's logging hides this level,
            the loader prints the times to standard error instead.
        has_augmentation: ignored; accepted because calls in the best-practice guide for ChirpID contain this argument.
        has_standardization: ignored; accepted for the same reason as ``has_augmentation``.

    Raises:
        TypeError: an argument is unknown; ``rank``, ``world_size`` or ``seed`` is passed without ``distributed``; or
            ``distributed`` is passed with an iterable dataset.
        ValueError: the CUDA ``device`` does not exist, two arguments contradict each other, or ``DataLoader`` refuses
            an argument.
        RuntimeError: this version of PyTorch does not support ``device``. ``torch.device`` raises the error.
    """
    given = {name: value for name, value in locals().items() if name not in ("dataset", "batch_size", "shuffle")}
    left = {name: value for name, value in given.items() if value is not _DEFAULTS[name]}
    return _create(
        LoaderOptions.parse(dataset, batch_size, shuffle, {**left, "num_workers": num_workers}, training=True)
    )


#: Maps each argument to its default. Arguments with their default values are not passed to PyTorch, because some
#: versions of PyTorch lack some arguments.
_DEFAULTS = {one.name: one.default for one in inspect.signature(create_loader).parameters.values()}
#: Arguments that ``DataLoader`` does not have: ``thread_safe``, and all arguments after ``thread_safe``.
_OWN_ARGUMENTS = (*_DEFAULTS,)[[*_DEFAULTS].index("thread_safe") :]


def _lists_arguments(function: _Function) -> _Function:
    """Make ``help(function)`` list the arguments of ``create_loader`` instead of ``**options``."""
    own = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    names = {one.name for one in own}
    rest = [one for one in inspect.signature(create_loader).parameters.values() if one.name not in names]
    arguments = [*own, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest)]
    function.__signature__ = inspect.signature(function).replace(parameters=arguments)  # type: ignore[attr-defined]
    return function


@_lists_arguments
@_calls_changed_loader(lambda options: not options.keys().isdisjoint({"shuffle", "sampler", "batch_sampler"}))
def create_training_loader(
    dataset: Any,
    batch_size: int | None = 1,
    *,
    shuffle: bool | _NotGiven | None = _NOT_GIVEN,
    **options: Unpack[LoaderArguments],
) -> DataLoader[Any]:
    """Build a loader for training, which shuffles by default.

    If the dataset is iterable, or the call passes a sampler, the loader does not shuffle. All other arguments and the
    errors are the same as for ``create_loader``.
    """
    order = shuffle
    if isinstance(order, _NotGiven):
        ordered = options.get("sampler") is not None or options.get("batch_sampler") is not None
        order = not ordered and not isinstance(dataset, IterableDataset)
    return _create(LoaderOptions.parse(dataset, batch_size, order, options, training=True))


@_lists_arguments
@_calls_changed_loader(lambda options: not options.get("drop_last"))
def create_validation_loader(
    dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **options: Unpack[LoaderArguments]
) -> DataLoader[Any]:
    """Build a loader for validation, which yields every sample, by default in the order of the dataset.

    The loader ignores ``drop_last=True`` and warns. All other arguments and the errors are the same as for
    ``create_loader``.
    """
    return _create(LoaderOptions.parse(dataset, batch_size, shuffle, _keep_all(options), training=False))


@_lists_arguments
@_calls_changed_loader(lambda options: not options.get("drop_last"))
def create_test_loader(
    dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **options: Unpack[LoaderArguments]
) -> DataLoader[Any]:
    """Build a loader for testing, which yields every sample, by default in the order of the dataset.

    The loader ignores ``drop_last=True`` and warns. All other arguments and the errors are the same as for
    ``create_loader``.
    """
    return _create(LoaderOptions.parse(dataset, batch_size, shuffle, _keep_all(options), training=False))


class OptimalDataLoaderFactory:
    """The functions of this module as static methods.

    The names are those of the best-practice guide to data loading for ChirpID.
    """

    create_loader = staticmethod(create_loader)
    create_training_loader = staticmethod(create_training_loader)
    create_validation_loader = staticmethod(create_validation_loader)
    create_test_loader = staticmethod(create_test_loader)

    @staticmethod
    def get_optimal_config(
        dataset_size: int, has_augmentation: bool = False, has_standardization: bool = False
    ) -> dict[str, Any]:
        """Return the arguments of ``DataLoader`` that the best-practice guide for ChirpID recommends for slow loading.

        With augmentation or standardisation, the guide recommends 8 workers, each of which prefetches 4 batches.
        Without augmentation and standardisation, the guide recommends 12 workers, each of which prefetches 6 batches. A
        dataset of less than 1,000 samples gets at most 4 workers. A dataset of more than 10,000 samples gets 2 more
        workers, but at most 16.

        The number of workers is at most (CPUs that this process may use / ranks on this machine) - 1, so that a CPU
        remains for the training.

        Args:
            dataset_size: number of samples.
            has_augmentation: whether loading augments samples.
            has_standardization: whether loading standardises samples.

        Returns:
            Dictionary ``config`` of keyword arguments. ``DataLoader`` accepts ``config`` even if the number of workers
            is 0.
        """
        workers, prefetch = (8, 4) if has_augmentation or has_standardization else (12, 6)
        if dataset_size < 1000:
            workers = min(workers, 4)
        elif dataset_size > 10000:
            workers = min(workers + 2, 16)
        workers = min(workers, cpus.cpus_for_loading())
        return {
            "num_workers": workers,
            "prefetch_factor": prefetch if workers else None,
            "pin_memory": pinning_device() is not None,
            "persistent_workers": workers > 0,
            "drop_last": False,
        }


def _keep_all(options: LoaderArguments) -> Mapping[str, Any]:
    if options.get("drop_last"):
        warnings.warn(
            "drop_last=True is ignored: validation and test read every sample. Omit drop_last.",
            UserWarning,
            stacklevel=4,
        )
    return {**options, "drop_last": False}


# -- the choice of the loading mode


@dataclass(frozen=True)
class LoadingPlan:
    """The loading mode of a loader, with the reason.

    Attributes:
        workers: number of worker processes.
        threads: number of threads of this process that load batches in advance. None: the loader measures during the
            training whether threads help.
        prefetch: number of batches that each worker loads in advance; None: the default of ``DataLoader``.
        why: the reason for the loading mode, which becomes a part of ``loader.decision``.
        measured: whether this loading mode was the fastest in a measurement.
    """

    workers: int
    threads: int | None
    prefetch: int | None
    why: str
    measured: bool = False


def plan_loading(options: LoaderOptions) -> LoadingPlan:
    """Return the loading mode that was fastest in a measurement.

    Without a measurement, return the loading mode that ``_choose_workers`` chooses.
    """
    choice = _measured_choice(options) if options.tune and _has_samples(options.dataset) else None
    threads, prefetch = options.prefetch_threads, options.prefetch_factor
    if choice is None:
        workers, why = _choose_workers(options)
        plan = LoadingPlan(workers, threads, prefetch, why)
    else:
        threads = choice.prefetch_threads or None if threads is None else threads
        prefetch = choice.prefetch_factor if prefetch is None else prefetch
        plan = LoadingPlan(choice.num_workers, threads, prefetch, choice.why, measured=True)
    if not plan.workers and options.prefetch_factor is not None:
        plan = replace(plan, why=f"{plan.why}; prefetch_factor has no effect without workers")
    return plan


def _allocates_batches(options: LoaderOptions) -> bool:
    """Return whether the loader allocates new memory for every batch.

    The result is False with ``batch_size=None`` or a ``collate_fn`` of the user, because the loader may then yield
    tensors that share memory with the dataset.
    """
    return options.makes_batches and is_stacking_collate(options.batching.get("collate_fn"))


def _choose_workers(options: LoaderOptions) -> tuple[int, str]:
    """Return the number of worker processes, and the reason for this number.

    The function checks its rules from top to bottom, and uses the first rule that applies.
    """
    if not options.num_workers:
        return 0, "no workers were requested"
    if isinstance(options.dataset, IterableDataset):  # each worker iterates over its own copy of the dataset
        return options.num_workers, "another number of workers would change the samples of an iterable dataset"
    if _allocates_batches(options) and is_in_memory(options.dataset):
        return 0, "the samples are in memory, so each batch is gathered at once"
    if options.thread_safe:
        return 0, "threads load ahead, because the caller declares the dataset thread-safe"
    return options.num_workers, "as many workers as requested"


def _has_samples(dataset: Any) -> bool:
    """Return whether ``dataset`` is a map-style dataset with at least one sample."""
    try:
        return not isinstance(dataset, IterableDataset) and len(dataset) > 0
    except TypeError:
        return False


def _measured_choice(options: LoaderOptions) -> LoaderChoice | None:
    """Return the saved loader settings for this dataset and machine.

    If no settings are saved, the function measures and saves the settings. With ``tune_seconds=0``, the function
    returns None instead of measuring.
    """
    arguments = {**_batch_arguments(options), "prefetch_factor": options.prefetch_factor}
    path = Path(options.tune) if isinstance(options.tune, str | Path) else default_profile_path()
    about = {"thread_safe": options.thread_safe, "num_workers": options.num_workers}
    key = loader_choice_key(options.dataset, {**arguments, **about})
    known = read_loader_choice(path, key)
    if known is not None:
        refused = why_workers_cannot_start(arguments) if known.num_workers else None
        if refused is None:
            return known
        logger.info("the saved loader settings are not used: %s", refused)
    if options.tune_seconds <= 0:
        return None
    logger.info("measuring for about %g s which loader settings are fastest", options.tune_seconds)
    choice = choose_loading_mode(
        options.dataset,
        arguments,
        threads_allowed=options.thread_safe,
        most_workers=options.num_workers or None,
        seconds=options.tune_seconds,
        step=options.tune_step,
    )
    for note in choice.notes:
        logger.info(note)
    save_loader_choice(path, key, choice)
    return choice


# -- the construction of the loader


def _create(options: LoaderOptions) -> DataLoader[Any]:
    if not options.optimize:
        return _original_loader(options)
    arguments = _batch_arguments(options)
    placement, where = _placement(options)
    held_on = placement.device if placement is not None and placement.is_held else None
    plan = plan_loading(options) if held_on is None else _resident_plan(options, where)
    mode = describe_loading_mode(plan.workers, plan.threads) if held_on is None else f"on {held_on}"
    parts = [f"{mode}: {plan.why}"]
    if options.share is not None:
        parts.append(f"rank {options.share.rank} of {options.share.world_size}")
    if held_on is not None:
        arguments["pin_memory"] = False
    elif where:
        parts.append(where)
    requested = options.num_workers
    # The loader's attributes have the requested values, even if a value has no effect.
    workers, prefetch = (plan.workers, plan.prefetch) if plan.workers else (requested, options.prefetch_factor)
    most = options.num_workers or max(cpus.cpus_per_rank(), plan.workers)
    if not workers and options.loader_chooses_workers:
        arguments = {name: given for name, given in arguments.items() if name not in ABOUT_WORKERS}
    loader: BatchedDataLoader[Any] = BatchedDataLoader(
        options.dataset,
        in_process=workers > 0 and not plan.workers,
        prefetch_threads=plan.threads,
        thread_safe=options.thread_safe,
        keep_workers=plan.measured and plan.workers > 0,
        benchmark=options.benchmark,
        placement=placement,
        epochs=None if options.share is None else RankEpochs(options.share.seed, options.share.rank),
        most_workers=most if options.adjust_workers and held_on is None else None,
        # A placement has its own pinned memory, so pinning the batches would be an additional copy.
        pins_own_batches=options.pin_memory is None and placement is None and _allocates_batches(options),
        **_with_workers(arguments, workers, prefetch, options.persistent_workers and requested > 0),
    )
    return _attach_decision(loader, "; ".join(parts), options.benchmark)


def _resident_plan(options: LoaderOptions, why: str) -> LoadingPlan:
    """Return the ``LoadingPlan`` for samples that are stored on a device; ``why`` is the reason in this plan."""
    if options.num_workers:
        why += "; num_workers has no effect"
    if options.prefetch_factor is not None:
        why += "; prefetch_factor has no effect"
    return LoadingPlan(0, 0, None, why)


class _PlainDataLoader(DataLoader[Any]):
    """PyTorch's loader with two additions: the loader can move its batches to a device, and can log the data wait."""

    def __init__(self, dataset: Any, *, benchmark: bool, placement: Placement | None, **arguments: Any) -> None:
        super().__init__(dataset, **arguments)
        self.benchmark = self._benchmark = benchmark
        self.placement = self._placement = placement

    device = BatchedDataLoader.device

    def __iter__(self) -> Any:
        batches: Any = super().__iter__()
        if self._placement is not None:
            batches = self._placement.deliver(self, batches)
        return TimedBatches(batches, log_waits) if self._benchmark else batches


def _original_loader(options: LoaderOptions) -> DataLoader[Any]:
    """Return PyTorch's own loader for these arguments.

    With ``options.device``, the loader moves its batches to the device.
    """
    make: Callable[..., DataLoader[Any]] = DataLoader
    placement, where = _placement(options)
    if options.benchmark or placement is not None:
        make = partial(_PlainDataLoader, benchmark=options.benchmark, placement=placement)
    workers, prefetch, persistent = options.num_workers, options.prefetch_factor, options.persistent_workers
    loader = make(options.dataset, **_with_workers(_batch_arguments(options), workers, prefetch, persistent))
    mode = describe_loading_mode(workers, None) + (f"; {where}" if where else "")
    return _attach_decision(loader, f"PyTorch's own loading (optimize=False): {mode}", options.benchmark)


def _placement(options: LoaderOptions) -> tuple[Placement | None, str]:
    """Return the ``Placement`` that puts the batches on ``options.device``, and a description of the placement.

    Without a device, the placement is None, and the description is empty. Without ``options.optimize``, the placement
    moves the batches.
    """
    if options.device is None:
        return None, ""
    # Imported here because few loaders have a device.
    from chirpid_patch.device.place_batches import create_moving_placement, create_placement

    if not options.optimize:
        return create_moving_placement(options.device)
    return create_placement(options.dataset, options.batching, options.device, options.resident_share)


def _batch_arguments(options: LoaderOptions) -> dict[str, Any]:
    """Return the arguments of ``DataLoader`` except the arguments about workers."""
    return {**options.batching, "pin_memory": bool(options.pin_memory)}


def _with_workers(options: Mapping[str, Any], workers: int, prefetch: int | None, persistent: bool) -> dict[str, Any]:
    """Return ``options`` with the arguments for ``workers`` worker processes.

    Without workers, ``prefetch`` and ``persistent`` are omitted, because ``DataLoader`` would raise an error.
    """
    if not workers:
        return {**options, "num_workers": 0}
    return {**options, "num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": persistent}


def _attach_decision(loader: Any, decision: str, benchmark: bool) -> DataLoader[Any]:
    """Set ``loader.decision``, log the decision, and return ``loader``.

    With ``benchmark``, the function logs at level INFO, or prints if the program's logging hides this level.
    """
    loader.decision = decision
    size = loader.batch_size if loader.batch_size is not None else "as sampled"
    message = f"{type(loader.dataset).__name__}, batch size {size}: {decision}"
    if benchmark:
        log_or_print(message)
    else:
        logger.debug(message)
    result: DataLoader[Any] = loader
    return result
