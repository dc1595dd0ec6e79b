"""`make bench-small`: compare the loader that the factory builds with PyTorch's loader on epochs with little work.

There are 40 set-ups: eight kinds of dataset with five settings of the loader each. A round times the same number of
epochs with each loader, in one process, in an order that changes from round to round. The result is the mean ratio of
times (factory / PyTorch) over all rounds, with its 95 % interval. Datasets of `chirpid_patch` are compared with the
classes that they replace. The benchmark writes `small-setups.md` and `small-setups.json`. With `--check`, the exit code
is 1 if a ratio is above 1.1.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import torch
from harness import (
    Goal,
    Progress,
    check_option,
    conditions,
    end,
    goal_lines,
    made_by,
    output_option,
    paired,
    ratio_ends,
    table,
    write,
)
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from chirp_migrate.stats.ratios import paired_ratio
from chirpid_patch import OptimalDataLoaderFactory, WorkerSafeSequenceDataset, WorkerSafeStandardizedDataset

#: Largest allowed time of a set-up / time with PyTorch's loader.
_MOST = 1.1
#: Smallest number of seconds of one timing of the faster loader.
_LEAST_SECONDS = 0.02


class Own(Dataset[Any]):
    """Samples of a class that `chirpid_patch` does not know."""

    def __init__(self, count: int) -> None:
        self.rows = torch.rand(count, 4)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index


class Standardized(Dataset[Any]):
    """The dataset class that ``WorkerSafeStandardizedDataset`` replaces."""

    def __init__(self, dataset: Any, indices: Any, mean: float, std: float) -> None:
        self.dataset, self.indices, self.mean, self.std = dataset, indices, mean, std

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        x, y = self.dataset[self.indices[index]]
        return (x - self.mean) / (self.std + 1e-8), y


class Listed(Dataset[Any]):
    """The dataset class that ``WorkerSafeSequenceDataset`` replaces."""

    def __init__(self, data: list[Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


def _pairs(count: int) -> TensorDataset:
    return TensorDataset(torch.rand(count, 4), torch.arange(count))


def _samples(count: int) -> list[Any]:
    return [(torch.rand(4), number) for number in range(count)]


def _replaced(before: Callable[..., Any], after: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    return before(*arguments), after(*arguments)


#: Function that returns the original and the migrated dataset with a number of samples.
DATASETS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "TensorDataset of one column": lambda count: (TensorDataset(torch.rand(count, 4)),) * 2,
    "TensorDataset of pairs": lambda count: (_pairs(count),) * 2,
    "Subset": lambda count: (Subset(_pairs(count + 2), range(count)),) * 2,
    "ConcatDataset": lambda count: (ConcatDataset([_pairs(count), _pairs(1)]) if count else _pairs(0),) * 2,
    "list of pairs": lambda count: (_samples(count),) * 2,
    "class over a list of pairs": lambda count: _replaced(Listed, WorkerSafeSequenceDataset, _samples(count)),
    "standardised class": lambda count: _replaced(
        Standardized, WorkerSafeStandardizedDataset, _pairs(count + 2), list(range(count)), 0.5, 2.0
    ),
    "unknown class": lambda count: (Own(count),) * 2,
}

#: Number of samples in an epoch, and arguments of the loader.
EPOCHS: dict[str, tuple[int, dict[str, Any]]] = {
    "empty": (0, {"batch_size": 8}),
    "one batch of 8": (8, {"batch_size": 8}),
    "64 batches of 1": (64, {"batch_size": 1}),
    "8 batches of 4, shuffled": (32, {"batch_size": 4, "shuffle": True}),
    "3 batches of 32": (96, {"batch_size": 32}),
}


@dataclass(frozen=True)
class Measured:
    """The result of one set-up.

    Attributes:
        dataset: name of the kind of dataset.
        epoch: description of the settings of the loader.
        pytorch_s: seconds of an epoch with PyTorch's loader.
        ratio: time with the factory's loader / time with PyTorch's loader.
        low, high: the ends of the 95 % interval of the ratio.
    """

    dataset: str
    epoch: str
    pytorch_s: float
    ratio: float
    low: float
    high: float


def _timed(clock: Callable[[], float], loader: Any, epochs: int) -> float:
    begun = clock()
    for _ in range(epochs):
        for _batch in loader:
            pass
    return clock() - begun


def _measure(name: str, epoch: str, rounds: int, clock: Callable[[], float]) -> Measured:
    count, arguments = EPOCHS[epoch]
    before, after = DATASETS[name](count)
    plain: Any = DataLoader(before, **arguments)
    ours = OptimalDataLoaderFactory.create_loader(after, **arguments)
    epochs = 4
    while min(_timed(clock, plain, epochs), _timed(clock, ours, epochs)) < _LEAST_SECONDS:
        epochs *= 2
    loaders = {"PyTorch": plain, "ours": ours}
    timed = {name: partial(_timed, clock, loader, epochs) for name, loader in loaders.items()}
    times = {name: [one / epochs for one in some] for name, some in paired(timed, rounds, 0).items()}
    ratio = paired_ratio(times["PyTorch"], times["ours"])
    return Measured(name, epoch, sorted(times["PyTorch"])[rounds // 2], *ratio_ends(ratio))


@click.command(context_settings={"max_content_width": 100})
@click.option("--rounds", type=click.IntRange(min=4), default=20, show_default=True, help="Timings of each loader.")
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="Measure wall time, or CPU time of the process (on a busy machine).",
)
@check_option
@output_option
def main(rounds: int, clock: str, check: bool, output: Path) -> None:
    """Compare loaders on epochs with little work."""
    torch.set_num_threads(1)
    progress, found = Progress(), []
    gc.disable()
    for name, epoch in product(DATASETS, EPOCHS):
        progress.step(f"{name}, {epoch}")
        found.append(_measure(name, epoch, rounds, time.perf_counter if clock == "wall" else time.process_time))
        gc.collect()
    progress.end()
    worst = max(found, key=lambda one: one.ratio)
    goal = Goal(
        f"epoch time with the factory / with PyTorch's loader, in each of {len(found)} set-ups",
        f"at most {_MOST}",
        f"{worst.ratio:.2f} at most ({worst.dataset}, {worst.epoch})",
        worst.ratio <= _MOST,
    )
    settings = {**conditions(), "rounds": rounds, "clock": clock}
    rows = [
        (one.dataset, one.epoch, f"{one.pytorch_s * 1e6:.0f}", f"{one.ratio:.2f}", f"{one.low:.2f} to {one.high:.2f}")
        for one in found
    ]
    header = ("dataset", "epoch", "PyTorch's loader, µs per epoch", "factory / PyTorch", "95 % interval")
    lines = ["# Epochs with little work", "", made_by(settings), "", *goal_lines([goal]), ""]
    write(
        output,
        "small-setups",
        "\n".join([*lines, *table(header, rows, left=2)]) + "\n",
        {**settings, "setups": [asdict(one) for one in found]},
    )
    end([goal], check)


if __name__ == "__main__":
    main()
