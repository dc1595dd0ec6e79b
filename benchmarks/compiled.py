"""Measure how much the C module of `chirpid_patch` speeds up an epoch: train with and without this module, in turns.

The samples are float32 spectrograms of shape 1x224x313 in memory. The loader standardises and masks the samples, and
adds noise. A small CNN trains on the batches. Epochs with and without the C module alternate in one process, in a
changing order.
"""

from __future__ import annotations

from functools import partial

import click
import torch
from harness import conditions, epoch_s, made_by, paired, quartiles
from torch import nn
from torch.utils.data import TensorDataset

from chirpid_patch import (
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    native,
)


def _epoch(loader: torch.utils.data.DataLoader, train: bool, module: object) -> float:
    """Return the seconds of one epoch with ``module`` as the C module; None for no module."""
    native._native = module
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 31)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return epoch_s(loader, step if train else None)


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
            modules = {"with": compiled, "without": None}
            timed = {name: partial(_epoch, loader, train, module) for name, module in modules.items()}
            times = paired(timed, rounds)
            ratios = [without / with_it for without, with_it in zip(times["without"], times["with"], strict=True)]
            native._native = compiled
            low, median, high = quartiles(ratios)
            what = "training" if train else "loading only"
            print(f"{name}, {what}: {median:.2f} times as long without (quartiles {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
