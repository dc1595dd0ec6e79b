"""The loaders that the benchmark compares on each workload."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import chirpid_patch
from chirpid_patch import (
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
)
from chirpid_patch.loader_speed.measure import shut_down_workers

from . import third_party
from .hand_tuned import HandTuned, ReadInThreads, as_it_is
from .workloads import BATCH_SIZE, MASKS, NOISE, Data, Workload

OURS, OTHERS, LIMIT = "ours", "others", "limit"

_POOLED_VALUES = 1 << 22


class Running:
    """A loader that is ready: iterate over it once for each epoch, and close it at the end.

    Args:
        loader: the loader, or a list of batches.
        detail: description of the settings.
        batches: object that yields the batches of an epoch; None if this is the loader.
    """

    def __init__(self, loader: Any, detail: str = "", batches: Any = None) -> None:
        self.loader, self.detail = loader, detail
        self._batches = loader if batches is None else batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def close(self) -> None:
        """End the worker processes and threads, and free the memory."""
        if isinstance(self.loader, DataLoader):
            shut_down_workers(self.loader)
        self.loader = self._batches = None
        gc.collect()


Setup = Callable[[Workload, Data], Callable[[], Running]]


@dataclass(frozen=True)
class Contender:
    """One loader of the comparison.

    Attributes:
        name: name for the command line.
        title: title for tables.
        side: group of the loader: ours, others, or limit (a loader that does only a part of the work).
        prepare: function that creates the dataset, which is not timed, and returns a function that creates the loader.
        suits: function that returns whether the loader takes part in a workload.
        needs: distribution that must be installed; None if the loader needs none.
    """

    name: str
    title: str
    side: str
    prepare: Setup
    suits: Callable[[Workload], bool]
    needs: str | None = None


def _anything(workload: Workload) -> bool:
    return True


def _is_timed_alone(workload: Workload) -> bool:
    """Return whether no consumer works after each batch. With a consumer, fewer loaders are compared."""
    return not workload.step_s


# The original code, with its own and with other settings.


def _original(workers: int) -> Setup:
    def prepare(workload: Workload, data: Data) -> Callable[[], Running]:
        dataset = data.original(workload)
        return lambda: Running(
            DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=workers > 0),
            f"{workers} worker processes" if workers else "in the process",
        )

    return prepare


def guide_settings(samples: int, costly: bool) -> dict[str, Any]:
    """Return the settings of the optimisation guide, but keep all samples, and pin memory only with a GPU."""
    workers, prefetch = (8, 4) if costly else (12, 6)
    if samples < 1000:
        workers = min(workers, 4)
    elif samples > 10000:
        workers = min(workers + 2, 16)
    return {
        "num_workers": workers,
        "prefetch_factor": prefetch,
        "persistent_workers": True,
        "pin_memory": torch.cuda.is_available(),
    }


def _guide(workload: Workload, data: Data) -> Callable[[], Running]:
    dataset = data.original(workload)
    settings = guide_settings(len(dataset), costly=workload.decoding is None)
    detail = f"{settings['num_workers']} worker processes, {settings['prefetch_factor']} batches ahead each"
    return lambda: Running(DataLoader(dataset, BATCH_SIZE, shuffle=True, **settings), detail)


def _hand_tuned(workload: Workload, data: Data) -> Callable[[], Running]:
    dataset: Any
    if workload.decoding is not None:
        threads = third_party.threads_for(workload)
        dataset, detail = ReadInThreads(data.original(workload), threads), f"{threads} threads"
    else:
        dataset, detail = _batched(workload, data, pool=None), "in the process"
    return lambda: Running(DataLoader(dataset, BATCH_SIZE, shuffle=True, collate_fn=as_it_is), detail)


def _hand_pooled(workload: Workload, data: Data) -> Callable[[], Running]:
    pool = torch.randn(_POOLED_VALUES, generator=torch.Generator().manual_seed(1)).mul_(NOISE.std)
    dataset = _batched(workload, data, pool)
    return lambda: Running(DataLoader(dataset, BATCH_SIZE, shuffle=True, collate_fn=as_it_is), "in the process")


def _batched(workload: Workload, data: Data, pool: Tensor | None) -> HandTuned:
    return HandTuned(
        data.tensor(workload),
        data.labels,
        data.mean,
        data.std,
        MASKS if workload.masks else None,
        NOISE if workload.noise else None,
        pool,
    )


# The limit: copies of the batches, without other work.


@dataclass(frozen=True)
class _Gather:
    images: Tensor
    labels: Tensor
    memory: Tensor | None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.split(torch.randperm(len(self.images)), BATCH_SIZE):
            if self.memory is None:
                x = self.images.index_select(0, rows)
            else:
                x = torch.index_select(self.images, 0, rows, out=self.memory[: len(rows)])
            yield x, self.labels.index_select(0, rows)


def _gather(reused: bool) -> Setup:
    def prepare(workload: Workload, data: Data) -> Callable[[], Running]:
        images = data.tensor(workload)
        memory = torch.empty((BATCH_SIZE, *images.shape[1:]), dtype=images.dtype) if reused else None
        return lambda: Running(_Gather(images, data.labels, memory), "index_select")

    return prepare


# Other libraries, with the per-sample datasets of the original code.


def _in_threads(library: Callable[[Any, int, bool], Callable[[], Any]]) -> Setup:
    def prepare(workload: Workload, data: Data) -> Callable[[], Running]:
        threads = third_party.threads_for(workload)
        make = library(data.original(workload), threads, workload.decoding is None)
        return lambda: Running(make(), f"{threads} threads")

    return prepare


def _tensordict(workload: Workload, data: Data) -> Callable[[], Running]:
    make = third_party.tensordict_loader(data.tensor(workload), data.labels, data.mean, data.std, workload.transforms)
    return lambda: Running(make(), "in the process")


# The loaders of this project.


def _our_dataset(workload: Workload, data: Data, noise_mode: str | None) -> Any:
    """Return the dataset that a migrated backend has in place of ``data.original(workload)``."""
    if workload.decoding is not None:
        return data.original(workload)
    base: Any
    if workload.storage == "float32":
        base = TensorDataset(data.floats, data.labels)
    elif workload.storage == "uint8":
        base = chirpid_patch.WorkerSafeArrayDataset(data.eight_bit, data.labels, dtype=torch.float32, divisor=255)
    else:
        base = chirpid_patch.WorkerSafeArrayDataset(data.mapped, data.labels)
    dataset = WorkerSafeStandardizedDataset(base, range(data.samples), data.mean, data.std)
    masks = {"time_mask_param": MASKS.widest_time, "freq_mask_param": MASKS.widest_freq, "p": MASKS.p}
    noise = {"std": NOISE.std, "p": NOISE.p, **({} if noise_mode is None else {"mode": noise_mode})}
    if not (workload.masks or workload.noise):
        return dataset
    return WorkerSafeAugmentedDataset(
        dataset,
        {
            "spec_augment_params": masks if workload.masks else None,
            "gaussian_noise_params": noise if workload.noise else None,
        },
    )


def _ours(noise_mode: str | None = None) -> Setup:
    def prepare(workload: Workload, data: Data) -> Callable[[], Running]:
        dataset = _our_dataset(workload, data, "pooled" if workload.pooled else noise_mode)
        create = OptimalDataLoaderFactory.create_training_loader
        return lambda: Running(create(dataset, BATCH_SIZE, shuffle=True))

    return prepare


def _ours_tuned(**options: Any) -> Setup:
    def prepare(workload: Workload, data: Data) -> Callable[[], Running]:
        dataset = _our_dataset(workload, data, None)
        # A new profile, so that the factory measures here and uses no earlier measurement.
        profile = data.folder / "-".join([workload.name, *options, "choice.json"])
        create = OptimalDataLoaderFactory.create_training_loader
        return lambda: Running(create(dataset, BATCH_SIZE, shuffle=True, tune=profile, **options))

    return prepare


CONTENDERS: tuple[Contender, ...] = (
    Contender("original-0", "original, 0 workers", OTHERS, _original(0), _anything),
    Contender("original-2", "original, 2 workers", OTHERS, _original(2), _anything),
    Contender("original-4", "original, 4 workers", OTHERS, _original(4), _is_timed_alone),
    Contender("guide", "the guide's constants", OTHERS, _guide, _is_timed_alone),
    Contender(
        "ours-tuned",
        "ours, tuned",
        OURS,
        _ours_tuned(),
        lambda workload: workload.decoding is not None,
    ),
    Contender(
        "ours-threads",
        "ours, tuned, thread-safe",
        OURS,
        _ours_tuned(thread_safe=True),
        lambda workload: workload.decoding is not None,
    ),
    Contender("ours", "ours", OURS, _ours(), _anything),
    Contender(
        "ours-exact",
        "ours, exact noise",
        OURS,
        _ours("exact"),
        lambda workload: workload.in_memory and workload.noise and not workload.pooled,
    ),
    Contender("ours-pooled", "ours, pooled noise", OURS, _ours("pooled"), lambda workload: bool(workload.step_s)),
    Contender(
        "hand-tuned",
        "hand-tuned",
        OTHERS,
        _hand_tuned,
        lambda workload: workload.decoding != "python",  # threads cannot speed up Python code
    ),
    Contender("hand-pooled", "hand-tuned, pooled noise", OTHERS, _hand_pooled, lambda workload: workload.pooled),
    Contender("spdl", "SPDL", OTHERS, _in_threads(third_party.spdl_loader), _is_timed_alone, needs="spdl"),
    Contender(
        "torchdata",
        "torchdata nodes",
        OTHERS,
        _in_threads(third_party.torchdata_loader),
        _is_timed_alone,
        needs="torchdata",
    ),
    Contender("tensordict", "tensordict", OTHERS, _tensordict, lambda workload: workload.in_memory, needs="tensordict"),
    Contender("raw-gather", "raw gather", LIMIT, _gather(reused=True), lambda workload: workload.in_memory),
    Contender(
        "raw-gather-fresh",
        "raw gather, fresh memory",
        LIMIT,
        _gather(reused=False),
        lambda workload: workload.in_memory,
    ),
)

TITLES = {contender.name: contender.title for contender in CONTENDERS}
SIDES = {contender.name: contender.side for contender in CONTENDERS}
