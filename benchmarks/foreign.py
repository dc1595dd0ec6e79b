"""`make bench-foreign`: compare the loaders of PyTorch and `chirpid_patch` on datasets without our decorators.

Without a decorator of `chirpid_patch`, the loader of `chirpid_patch` cannot be faster than PyTorch's loader, but it
must not be slower. The benchmark computes the ratio of the times (`chirpid_patch` / PyTorch). The 95 % interval of this
ratio must not be wholly above 1.05. Whole epochs of both loaders alternate in one process, in a changing order. Workers
start again for each epoch, or persist. With --write, the benchmark writes benchmarks/results/foreign.md. With --check,
a ratio above the limit leads to exit code 1.
"""

from __future__ import annotations

import gc
import time
import warnings
from statistics import median
from typing import Any

import click
import torch
from harness import (
    RESULTS,
    Goal,
    check_option,
    conditions,
    end,
    epoch_s,
    in_turn,
    keep_busy,
    made_by,
    median_interval,
    table,
    write,
)
from torch.utils.data import DataLoader, Dataset

from chirpid_patch import OptimalDataLoaderFactory

_MOST = 1.05


class Spectrograms(Dataset[Any]):
    """Samples of 1x224x313 float32 values. Reading a sample takes ``seconds`` of CPU time."""

    def __init__(self, n: int, seconds: float) -> None:
        self.values = torch.rand(n, 1, 224, 313)
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        keep_busy(self.seconds)
        return (self.values[index] - 0.4) / 0.2, index % 31


class Numbers(Dataset[Any]):
    """Samples that take almost no time, so that only the loader itself is measured."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, index / 2


WORK: dict[str, tuple[Any, dict[str, Any]]] = {
    "numbers, in the process": (Numbers(), {"batch_size": 100}),
    "numbers, 2 workers": (Numbers(), {"batch_size": 100, "num_workers": 2}),
    "numbers, 2 kept workers": (Numbers(), {"batch_size": 100, "num_workers": 2, "persistent_workers": True}),
    "spectrograms, in the process": (Spectrograms(600, 0.0), {"batch_size": 32}),
    "spectrograms, 2 workers": (Spectrograms(600, 0.0), {"batch_size": 32, "num_workers": 2}),
    "spectrograms of 1 ms, 2 workers": (Spectrograms(600, 0.001), {"batch_size": 32, "num_workers": 2}),
    "spectrograms of 1 ms, 4 kept workers": (
        Spectrograms(600, 0.001), {"batch_size": 32, "num_workers": 4, "persistent_workers": True},
    ),
}  # fmt: skip


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Smallest number of epochs of each loader.")
@click.option("--seconds-each", default=30.0, show_default=True, help="Smallest number of seconds for each dataset.")
@click.option("--only", default="", help="Only datasets whose name contains TEXT.")
@check_option
@click.option("--write", "save", is_flag=True, help="Write benchmarks/results/foreign.md.")
def main(rounds: int, seconds_each: float, only: str, check: bool, save: bool) -> None:
    """Print the time of the new loader / the time of PyTorch's loader."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    settings = conditions()
    print(f"{made_by(settings)}.")
    rows, goals = [], []
    for name, (dataset, options) in WORK.items():
        if only not in name:
            continue
        makers = {"torch": DataLoader, "ours": OptimalDataLoaderFactory.create_loader}
        loaders = {kind: make(dataset, shuffle=True, **options) for kind, make in makers.items()}
        ratios: list[float] = []
        for loader in loaders.values():
            epoch_s(loader)  # a warm-up
        until = time.monotonic() + seconds_each
        while len(ratios) < rounds or time.monotonic() < until:
            seconds = {kind: epoch_s(loaders[kind]) for kind in in_turn(list(loaders), len(ratios))}
            ratios.append(seconds["ours"] / seconds["torch"])
        low, high = median_interval(ratios)
        rows.append((name, f"{median(ratios):.3f}", f"{low:.3f} to {high:.3f}"))
        goals.append(Goal(name, f"not above {_MOST}", rows[-1][2], high <= _MOST))
        print(*rows[-1], sep="  ", flush=True)
        loaders.clear()
        gc.collect()
    if save:
        lines = [
            "# Datasets without decorators: PyTorch's loader and the loader of chirpid_patch", "",
            f"{made_by(settings)}.",
            "Ratio of epoch times (chirpid_patch / PyTorch): median of the rounds, and its 95 % interval.", "",
            *table(["dataset", "ratio", "interval"], rows), "",
        ]  # fmt: skip
        write(RESULTS, "foreign", "\n".join(lines))
    end(goals, check)


if __name__ == "__main__":
    main()
