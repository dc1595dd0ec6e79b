"""Loaders made for the dataset, the CPUs and the device at hand (R-000-2.1)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from chirpid_patch.datasets.collate import stacks_samples
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.distributed.loader import DistributedDataLoader
from chirpid_patch.distributed.sampling import take_share
from chirpid_patch.loading.batch_timer import BatchTimer, tell, tell_waits
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.randomness.seeding import local_ranks
from chirpid_patch.tune.adjusting import AdjustingDataLoader
from chirpid_patch.tune.profiles import default_profile, recall, remember, signature
from chirpid_patch.tune.search import LoaderChoice, choose_loading, why_no_processes

if TYPE_CHECKING:
    from chirpid_patch.device.placement import Placement

logger = logging.getLogger("chirpid_patch")

#: Parameters of ``torch.utils.data.DataLoader`` behind the dataset that may be given by position.
_POSITIONAL = (
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
_ABOUT_WORKERS = ("timeout", "multiprocessing_context")
_TORCH_PREFETCH = 2  # what DataLoader uses with workers when nothing is given


class _Unsaid(Enum):
    """The default of ``shuffle``, which, unlike None, leaves the order to a sampler that is given."""

    UNSAID = "as the method's name says"

    def __repr__(self) -> str:
        return "UNSAID"


_UNSAID = _Unsaid.UNSAID


class OptimalDataLoaderFactory:
    """Makes training, validation and test loaders.

    Every ``DataLoader`` argument can be given, is honoured, and is checked as ``DataLoader`` checks it. What is not
    given is chosen, and the choice with its reason is logged (logger ``chirpid_patch``, INFO) and kept as
    ``loader.decision``. Further arguments:

    max_workers: the call this one replaces had so many workers. There are as many, or none where samples are in memory.
        Without it and ``num_workers``, no process is started.
    thread_safe: several threads may use the dataset and ``collate_fn`` at once, and they draw no random numbers from
        global generators. They are then read by threads that load ahead, in the place of worker processes.
    prefetch_threads: how many threads load ahead without worker processes; not given, that is tried in the loop.
    tune: choose by measuring, with worker processes among the candidates whether or not the replaced call had any.
        The choice is remembered for this dataset and machine; ``tune_seconds`` (default 3) bounds the measuring, and
        ``tune_step``, called with a batch, stands for a step of the training meanwhile.
    profile: the file of remembered choices (default: one in the user's cache folder, or ``CHIRPID_PROFILE``). Given
        without ``tune``, a choice that it holds for this dataset and machine is used.
    distributed: share the samples among the ranks of ``torch.distributed`` or torchrun: for training as many on each,
        in another order every epoch; for validation and test every sample on exactly one. Order, augmentation and
        worker seeds follow from ``seed`` (default 0), see ``distributed.loader``. ``rank`` and ``world_size`` can be
        given where neither tells them. With one rank it changes nothing, but for ``seed``; with ``optimize=False`` the
        caller has to call ``set_epoch``.
    adjust_workers: change the number of workers between epochs, by how long the training waited for batches.
    device: batches come on this device. The samples are copied there once, where they are rows of tensors or arrays
        with no augmentation but the package's own and take at most ``resident_share`` (default 0.5) of its free
        memory, and batches are made from them there, see ``device.resident``. Else batches are loaded as without
        ``device`` and moved, see ``device.prefetch``; ``loader.decision`` says why. On the CPU, where ordinary loading
        is faster, samples are held only if ``resident_share`` is given.
    optimize: False gives PyTorch's own loader as the replaced call would have built it.
    benchmark: tell the data wait of each epoch (on standard error, where the program logs nothing of level INFO).
    has_augmentation, has_standardization: what the samples go through, as the guide's calls say it: nothing follows.
    """

    @staticmethod
    def get_optimal_config(
        dataset_size: int, has_augmentation: bool = False, has_standardization: bool = False
    ) -> dict[str, Any]:
        """DataLoader arguments for ``dataset_size`` samples that cost real work to load.

        8 workers with augmentation or standardisation (4 batches ahead each), else 12 (6 ahead); at most 4
        below 1,000 samples, 2 more (at most 16) above 10,000; never more than the CPUs this process may
        use, divided by the ranks on this machine, less one for the training itself. ``DataLoader(dataset, **config)``
        is legal whatever comes out.
        """
        workers, prefetch = (8, 4) if has_augmentation or has_standardization else (12, 6)
        if dataset_size < 1000:
            workers = min(workers, 4)
        elif dataset_size > 10000:
            workers = min(workers + 2, 16)
        workers = min(workers, _spare_cpus())
        return {
            "num_workers": workers,
            "prefetch_factor": prefetch if workers else None,
            "pin_memory": pinning_device() is not None,
            "persistent_workers": workers > 0,
            "drop_last": False,
        }

    @classmethod
    def create_training_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | _Unsaid | None = _UNSAID, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for training; shuffles unless told otherwise, given a sampler, or for an iterable dataset."""
        orders_itself = isinstance(dataset, IterableDataset) or any(
            kwargs.get(name) is not None for name in ("sampler", "batch_sampler")
        )
        return _create(dataset, batch_size, not orders_itself if shuffle is _UNSAID else shuffle, kwargs, training=True)

    @classmethod
    def create_loader(cls, dataset: Any, *args: Any, **kwargs: Any) -> DataLoader[Any]:
        """A loader for the arguments of ``torch.utils.data.DataLoader``, for whatever it is used.

        ``num_workers`` is what the caller would have had at most, as ``max_workers`` elsewhere.

        Raises:
            TypeError: more positional arguments than ``DataLoader`` takes, or one that is given twice.
        """
        if len(args) > len(_POSITIONAL):
            raise TypeError(f"a DataLoader takes {len(_POSITIONAL) + 1} positional arguments, not {len(args) + 1}")
        given = dict(zip(_POSITIONAL, args, strict=False))
        twice = sorted(given.keys() & kwargs.keys())
        if twice:
            raise TypeError(f"DataLoader got multiple values for argument {twice[0]!r}")
        options = {**given, **kwargs}
        batch_size, shuffle = options.pop("batch_size", 1), options.pop("shuffle", None)
        options["max_workers"] = options.pop("num_workers", 0)
        return cls.create_training_loader(dataset, batch_size, shuffle=shuffle, **options)

    @classmethod
    def create_validation_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for validation: every sample, in order unless told otherwise; ``drop_last`` is refused."""
        return _create(dataset, batch_size, shuffle, _keep_all(kwargs), training=False)

    @classmethod
    def create_test_loader(
        cls, dataset: Any, batch_size: int | None = 1, *, shuffle: bool | None = False, **kwargs: Any
    ) -> DataLoader[Any]:
        """A loader for testing: every sample, in order unless told otherwise; ``drop_last`` is refused."""
        return _create(dataset, batch_size, shuffle, _keep_all(kwargs), training=False)


def _keep_all(kwargs: dict[str, Any]) -> dict[str, Any]:
    if kwargs.get("drop_last"):
        warnings.warn(
            "drop_last=True is ignored for validation and test: they see every sample; leave it out.",
            UserWarning,
            stacklevel=3,
        )
        kwargs["drop_last"] = False
    return kwargs


class _MeasuredDataLoader(DataLoader[Any]):
    """PyTorch's loader with its waits logged."""

    def __iter__(self) -> Any:
        return BatchTimer(super().__iter__(), tell_waits)


def _create(
    dataset: Any, batch_size: int | None, shuffle: Any, given: dict[str, Any], *, training: bool
) -> DataLoader[Any]:
    """The loader for arguments as the caller gave them."""
    options = {**given, "batch_size": batch_size}
    distributed = bool(options.get("distributed"))
    share = take_share(dataset, bool(shuffle), options, training=training)
    options["shuffle"] = shuffle if share is None else False  # the sampler of the ranks decides
    for name in ("has_augmentation", "has_standardization"):
        options.pop(name, None)
    max_workers = options.pop("max_workers", None)
    measuring = _Measuring.of(options)
    optimize, benchmark = bool(options.pop("optimize", True)), bool(options.pop("benchmark", False))
    thread_safe, threads = bool(options.pop("thread_safe", False)), options.pop("prefetch_threads", None)
    adjust = bool(options.pop("adjust_workers", False))
    if adjust and share is not None:
        raise ValueError("adjust_workers and distributed=True exclude each other: leave one of them out")
    explicit, persistent = options.pop("num_workers", None), bool(options.pop("persistent_workers", False))
    prefetch = options.pop("prefetch_factor", None)
    placement = _placement(options)
    asked = explicit if explicit is not None else max_workers or 0  # what the replaced call would have had
    is_open = explicit is None and (measuring.asked or adjust)  # how many there will be
    _check_as_torch_does(options, 1 if is_open else asked, prefetch, persistent)

    # With a device, batches are staged in pinned memory of the loader's own: pinning each would be one more copy.
    # Single samples may be the dataset's own tensors, and stay these.
    pins = placement is None and options.get("batch_size", 1) is not None
    options["pin_memory"] = bool(options.get("pin_memory", pins)) and pinning_device() is not None
    if not optimize:
        plain: Callable[..., Any] = _MeasuredDataLoader if benchmark else DataLoader
        moved = "" if placement is None else f"; {placement.why}"
        if placement is not None:
            plain = placement.plain_loader(benchmark=benchmark)
        loader = plain(dataset, **_with_workers(options, asked, prefetch, persistent))
        return _decided(loader, f"original loading (optimize=False): {_processes(asked)}{moved}", benchmark)

    resident = placement if placement is not None and placement.holds(dataset, options) else None
    choice = None
    if resident is None and explicit is None and measuring.asked and _has_samples(dataset):
        choice = measuring.choice(dataset, {**options, "prefetch_factor": prefetch}, thread_safe, max_workers)
    if resident is not None:
        workers, why = 0, resident.why + ("; worker processes have nothing to do there" if asked else "")
    elif choice is None:
        workers, why = _choose_workers(dataset, explicit, max_workers, options, thread_safe)
        if distributed and explicit is None and workers > _spare_cpus():
            workers, why = _spare_cpus(), _few_cpus(workers)
    else:
        workers, why = choice.num_workers, choice.why
        threads = (choice.prefetch_threads or None) if threads is None else threads
    if not workers and (asked or is_open):
        options = {name: given for name, given in options.items() if name not in _ABOUT_WORKERS}
    ahead = prefetch if prefetch or choice is None else choice.prefetch_factor
    if not workers and prefetch is not None:
        why += "; prefetch_factor has no meaning there"
    kind: type[BatchedDataLoader[Any]] = BatchedDataLoader
    further: dict[str, Any] = {}
    if share is not None:
        kind, further = DistributedDataLoader, {"seed": share.seed, "rank": share.rank}
        why += f"; rank {share.rank} of {share.world_size}"
    elif adjust and resident is None:
        kind, further = AdjustingDataLoader, {"most_workers": max_workers or None}
    make: Callable[..., BatchedDataLoader[Any]] = kind
    if placement is not None:
        make = placement.loader(kind)
        why += "" if resident is not None else f"; {placement.why}"
    with warnings.catch_warnings():
        if choice is not None:  # more workers than CPUs were measured to be faster
            warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = make(
            dataset,
            **further,
            draws_ahead=0 if workers else (prefetch or _TORCH_PREFETCH) * asked,
            draws_like_persistent_workers=persistent and asked > 0 and not workers,
            prefetch_threads=threads,
            thread_safe=thread_safe,
            keep_workers=choice is not None and workers > 0,
            benchmark=benchmark,
            **_with_workers(options, workers, ahead, persistent and asked > 0),
        )
    way = _way(workers, threads) if resident is None else f"on {resident.device}"
    return _decided(loader, f"{way}: {why}", benchmark)


def _spare_cpus() -> int:
    """CPUs of this rank beside the one it trains on."""
    return max(usable_cpus() // local_ranks() - 1, 0)


def _few_cpus(asked: int) -> str:
    """Why a rank has fewer workers than were asked for."""
    ranks = local_ranks()
    shared = f" by {ranks} ranks" if ranks > 1 else ""
    return f"{asked} were asked for, {usable_cpus()} CPUs are usable{shared}"


def _check_as_torch_does(options: Mapping[str, Any], workers: int, prefetch: int | None, persistent: bool) -> None:
    """Raise what ``DataLoader`` raises for arguments about workers, whether or not any are then used."""
    about = {name: options[name] for name in _ABOUT_WORKERS if name in options}
    # Only whether there are workers matters; many would have it warn of too few CPUs.
    DataLoader((), num_workers=min(workers, 1), prefetch_factor=prefetch, persistent_workers=persistent, **about)  # type: ignore[arg-type]


def _has_samples(dataset: Any) -> bool:
    """Whether there is something to measure: a map-style dataset that is not empty."""
    try:
        return not isinstance(dataset, IterableDataset) and len(dataset) > 0
    except TypeError:
        return False


def _placement(options: dict[str, Any]) -> Placement | None:
    """Where the caller's ``options`` want batches, taken out of them; None: where PyTorch's loader has them."""
    device, share = options.pop("device", None), options.pop("resident_share", None)
    if device is None:
        return None
    from chirpid_patch.device.placement import Placement  # most loaders need nothing of it

    return Placement(device, share)


@dataclass(frozen=True)
class _Measuring:
    """The arguments that ask for a measured choice."""

    tune: bool
    seconds: float
    step: Callable[[Any], object] | None
    profile: Path | None

    @property
    def asked(self) -> bool:
        """Whether a measured choice was asked for."""
        return self.tune or self.profile is not None

    @classmethod
    def of(cls, options: dict[str, Any]) -> _Measuring:
        """Taken out of the caller's ``options``."""
        tune, seconds = bool(options.pop("tune", False)), float(options.pop("tune_seconds", 3.0))
        step, profile = options.pop("tune_step", None), options.pop("profile", None)
        return cls(tune, seconds, step, None if profile is None else Path(profile))

    def choice(
        self, dataset: Any, options: Mapping[str, Any], thread_safe: bool, max_workers: int | None
    ) -> LoaderChoice | None:
        """The remembered or newly measured choice; None where none is known and none may be measured."""
        path = self.profile or default_profile()
        key = signature(dataset, {**options, "thread_safe": thread_safe, "max_workers": max_workers})
        known = recall(path, key)
        if known is not None:
            refused = why_no_processes(options) if known.num_workers else None
            if refused is None:
                return known
            logger.info("the remembered choice is not used: %s", refused)
        if not self.tune:
            return None
        logger.info("measuring how best to load, for about %g s", self.seconds)
        choice = choose_loading(
            dataset,
            options,
            threads_allowed=thread_safe,
            most_workers=max_workers or None,
            seconds=self.seconds,
            step=self.step,
        )
        for note in choice.notes:
            logger.info(note)
        remember(path, key, choice)
        return choice


def _with_workers(options: Mapping[str, Any], workers: int, prefetch: int | None, persistent: bool) -> dict[str, Any]:
    """``options`` with the arguments that are legal for this number of workers."""
    if workers:
        return {
            **options,
            "num_workers": workers,
            "prefetch_factor": prefetch,
            "persistent_workers": persistent,
        }
    return {**options, "num_workers": 0}


def _choose_workers(
    dataset: Any, explicit: int | None, max_workers: int | None, options: Mapping[str, Any], thread_safe: bool
) -> tuple[int, str]:
    """Number of worker processes and the reason for it: the first that fits, as in ``docs/factory.md``."""
    if explicit is not None:
        return explicit, f"num_workers={explicit} was asked for"
    if not max_workers:
        return 0, "none were asked for"
    if isinstance(dataset, IterableDataset):
        # Each worker runs through its own copy of the dataset: another number would be other data.
        return max_workers, "an iterable dataset keeps the number it was written for"
    # Single items (batch_size=None) would be parts of the dataset's own memory here; workers send copies.
    batches = options["batch_size"] is not None or options.get("batch_sampler") is not None
    if batches and is_in_memory(dataset) and stacks_samples(options.get("collate_fn")):
        return 0, "the samples are in memory, batches are gathered at once"
    if thread_safe:
        return 0, "threads load ahead, as the dataset is said to be thread-safe"
    return max_workers, "as many as were asked for"


def _way(workers: int, threads: int | None) -> str:
    return _processes(workers) if workers or not threads else f"{threads} prefetch thread{'s' if threads > 1 else ''}"


def _processes(workers: int) -> str:
    return f"{workers} worker process{'' if workers == 1 else 'es'}" if workers else "loading in this process"


def _decided(loader: Any, decision: str, benchmark: bool) -> DataLoader[Any]:
    """``loader`` with its decision attached and logged, or told where a benchmark was asked for."""
    loader.decision = decision
    size = loader.batch_size if loader.batch_size is not None else "as sampled"
    message = f"{type(loader.dataset).__name__}, batch size {size}: {decision}"
    if benchmark:
        tell(message)
    else:
        logger.info(message)
    result: DataLoader[Any] = loader
    return result
