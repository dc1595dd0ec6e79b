"""Measure how much the C module of `chirpid_patch` speeds up an epoch: train with and without this module, in turns.

The samples are float32 spectrograms of shape 1x224x313 in memory. The loader standardises and masks the samples, and
adds noise. A small CNN trains on the batches. Epochs with and without the C module alternate in one process, in a
changing order.
"""

from __future__ import annotations

import time

import click
import torch
from harness import conditions, in_turn, made_by, quartiles
from torch import nn
from torch.utils.data import TensorDataset

from chirpid_patch import (
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    native,
)


def _epoch(loader: torch.utils.data.DataLoader, train: bool) -> float:
    """Return the seconds of one epoch."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 31)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    begun = time.perf_counter()
    for x, y in loader:
        if train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return time.perf_counter() - begun


@click.command()
@click.option("--rounds", default=15, show_default=True, help="Epochs with, and epochs without the C module.")
@click.option("--samples", default=800, show_default=True, help="Number of samples in an epoch.")
def main(rounds: int, samples: int) -> None:
    """Print the ratio of epoch times (without the C module / with the C module)."""
    if not native.is_available():
        raise click.ClickException("the C module is not compiled here: install with a C compiler")
    compiled = native._native
    data = TensorDataset(torch.rand(samples, 1, 224, 313), torch.randint(0, 31, (samples,)))
    standardized = WorkerSafeStandardizedDataset(data, range(samples), 0.4, 0.2)
    augmented = WorkerSafeAugmentedDataset(standardized, use_spec_augment=True, use_gaussian_noise=True)
    print(f"{made_by(conditions())}.")
    for name, dataset in (("standardise", standardized), ("and augment", augmented)):
        loader = OptimalDataLoaderFactory.create_training_loader(dataset, 32, prefetch_threads=0)
        for train in (False, True):
            ratios = []
            for number in range(rounds + 1):
                seconds = {}
                for with_it in in_turn([True, False], number):
                    native._native = compiled if with_it else None
                    seconds[with_it] = _epoch(loader, train)
                if number:  # the first is a warm-up
                    ratios.append(seconds[False] / seconds[True])
            native._native = compiled
            low, median, high = quartiles(ratios)
            what = "training" if train else "loading only"
            print(f"{name}, {what}: {median:.2f} times as long without (quartiles {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
